// Package cloud is EC2 as the ebs backend needs it: the AWS SDK behind plain
// types, with what makes its calls safe and cheap in one place.
//
//   - Describes go out alone at once and in company together, ask by filter, and
//     a thing that does not exist is an error of its own caller only (lookups).
//   - All waits share describes; the first comes when EC2 is usually done, the next ever more slowly (watch).
//   - What this client has lately done and seen corrects describes that lag
//     behind (memory).
//   - Each action has its own pace, learned from EC2's throttling (pace), and is
//     repeated as far as repeating it is safe; the caller's context is the only
//     limit (call).
//   - Every error code of EC2 stands for one of package backend's sentinels, in
//     one table, and its text says what to do (errors).
package cloud
