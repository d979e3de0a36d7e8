// Package cloud is EC2 as the ebs backend needs it: the AWS SDK behind plain
// types, with what makes its calls safe and cheap in one place. Describes are
// batched and ask by filter, waits share one watcher, each action has its own
// pace, and every error of EC2 becomes one of package backend's sentinels.
package cloud

import (
	_ "github.com/aws/aws-sdk-go-v2/aws"
	_ "github.com/aws/aws-sdk-go-v2/config"
	_ "github.com/aws/aws-sdk-go-v2/credentials"
	_ "github.com/aws/aws-sdk-go-v2/feature/ec2/imds"
	_ "github.com/aws/aws-sdk-go-v2/service/ec2"
	_ "github.com/aws/smithy-go"
)
