// Package concurrency holds what goroutines share that meet over a key: locks
// that reject (Locks) or queue (Queue) the second caller, operations that outlive
// their caller (Runner), calls that their callers share (Calls), lookups of many
// callers in few calls (Batcher), and a sleep that ends with its context.
package concurrency
