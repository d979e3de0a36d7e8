// Package lab is a deterministic simulation: it runs real code in virtual time
// (testing/synctest) and chooses the order of its effects from a seed. The same seed has
// the same trace.
//
// A world is a function that builds what is simulated and drives it. It runs in a bubble
// of testing/synctest, in whose goroutines no effect happens by itself: code that is about
// to send a request, deliver an event, make a system call or answer one calls Process.Pass
// and waits there. The Lab waits until every goroutine of the bubble waits
// (synctest.Wait), sorts the steps that wait by their keys, and chooses:
//
//   - a step that is taken, perhaps with one of the faults that the step names;
//   - or that time passes, while the steps that wait are slow;
//   - or an action of the world: of a user, an administrator, or the environment.
//
// One step is taken at a time. Choices are numbers in which 0 is the harmless one, so that a
// failed run can be shrunk: Shrink removes choices and sets them to 0 while the run still
// fails.
//
//	func world(l *lab.Lab) error {
//		w := newWorld(l) // starts goroutines, whose effects call Process.Pass
//		defer w.stop()   // ends all of them: a bubble must be empty at its end
//		if err := l.Chaos(200, lab.Plan{Actions: w.actions, Check: w.invariants}); err != nil {
//			return err
//		}
//		w.calm() // ends what the world has broken; the Lab injects no more faults
//		return l.Converge(lab.Plan{Check: w.invariants}, w.complete)
//	}
//
//	result := lab.Run(t, seed, world)     // result.Err, result.Hash, result.Trace
//	shrunk := lab.Shrink(t, result, world) // the same failure with fewer choices
//
// Rules for a world:
//
//   - Everything that it waits for is in the bubble: channels, timers, contexts of the
//     bubble. A goroutine that is blocked in a system call, on a socket or on a mutex stops
//     the simulation. A step must not be passed while a mutex is held that another goroutine
//     waits for.
//   - Steps of equal keys are taken in the order of their arrival. Keys therefore name the
//     actor, the kind of the step and its object.
//   - It takes random numbers from Lab.Choose only, in the goroutine that calls Chaos, or
//     while the one step that was taken is executed.
//   - It does not iterate over maps where the order has effects.
//
// One process simulates one seed at a time with GOMAXPROCS=1 (Run sets it). What then
// remains of the Go runtime's randomness, such as the choice of select among ready cases, is
// removed by the overlay that simulation/lab/overlay makes of the runtime's source.
package lab
