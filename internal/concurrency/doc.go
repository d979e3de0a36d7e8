// Package concurrency has what goroutines that use the same key share: locks
// that reject (Locks) or queue (Queue) the second caller, operations that outlive
// their caller (Runner), calls that their callers share (Calls), lookups of many
// callers in few calls (Batcher), a map whose entries expire (Expiring), and a sleep
// that ends with its context.
package concurrency
