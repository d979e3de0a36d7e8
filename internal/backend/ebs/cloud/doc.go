// Package cloud calls EC2 for the ebs backend, and puts plain types in front of the AWS
// SDK. It makes calls safe to repeat, and makes few of them.
//
//   - A lone describe is sent at once; concurrent ones become one call by filter. A
//     missing resource is an error for its own caller only (lookups).
//   - All waits share describes. The first is sent when EC2 is usually done, the next
//     ones at growing intervals (watch).
//   - The client's own recent calls and their answers correct describes that lag behind
//     (memory).
//   - Each action has its own pace, derived from EC2's throttling (pace), and is
//     repeated if that is safe. The caller's context is the only limit (call).
//   - One table maps EC2's error codes to the sentinels of package backend. The error's
//     text names the next action (errors).
//
// docs/reference/ebs.md lists the requirements with their tests.
package cloud
