// Package cloud is EC2 as the ebs backend needs it: the AWS SDK behind plain types.
// It makes calls safe to repeat and sends few of them.
//
//   - A single describe is sent at once, concurrent ones are sent together, by
//     filter. A missing resource is an error of its own caller only (lookups).
//   - All waits share describes. The first is sent when EC2 is usually done, the next
//     at growing intervals (watch).
//   - The recent calls and answers of this client correct describes that lag behind
//     (memory).
//   - Each action has its own pace, derived from EC2's throttling (pace), and is
//     repeated as far as that is safe. The caller's context is the only limit (call).
//   - Every error code of EC2 maps to one of package backend's sentinels, in one
//     table, and its text names the next step (errors).
//
// docs/reference/ebs.md lists the requirements with their tests.
package cloud
