// Package host is the world of the host door in the simulation laboratory: one machine
// with a host, drivers, pods and users.
//
// Real are the host itself (internal/host with its store in a real file, queues,
// controllers of claims, volumes, snapshots and pods, apply and delete, registration of
// drivers, journal, recovery after a restart), internal/lifecycle, internal/claim and
// internal/csi/client. Simulated are what the host calls: the driver
// (simulation/csidriver behind function calls instead of sockets), the mount table, the
// processes of containers, the registration directory, and the clock.
//
// A host may crash before each write of its store, before and after each call of a driver,
// and before each call of a controller. Its store then has what was committed. Mounts,
// containers and drivers stay; a reboot ends them.
package host
