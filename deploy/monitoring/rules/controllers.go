package rules

import (
	"fmt"
	"time"
)

// controllers are the alerts about the controllers of a cluster.
func controllers(clock Clock) []alert {
	return append([]alert{
		{
			name: "HoldfastIntentQuarantined", severity: warning, after: 5 * time.Minute,
			expr:    "holdfast_provision_quarantined_intents > 0",
			summary: "{{ $value }} intents of {{ $labels.instance }} are quarantined: it is unknown whether their volumes exist.",
			impact:  "Storage may hold volumes that no object names, and that nothing deletes. A person has to inspect the storage.",
		},
		{
			name: "HoldfastIntentsUnserved", severity: warning, after: 15 * time.Minute,
			expr:    "max by (job) (holdfast_provision_unserved_intents) > 0",
			summary: "{{ $value }} intents belong to processes that no longer exist.",
			impact:  "No process completes or undoes these creations: their claims stay pending, and storage may leak.",
		},
		{
			name: "HoldfastAttachmentStuck", severity: critical, after: 0,
			expr: fmt.Sprintf("max by (job, instance, driver_name, operation) (holdfast_attachments_oldest_seconds) > %s",
				clock.seconds(5*time.Minute)),
			summary: "{{ $labels.driver_name }}: a volume has waited for its {{ $labels.operation }} for {{ $value | humanizeDuration }}.",
			impact:  "The pod that needs the volume does not start.",
		},
		{
			name: "HoldfastNodeLost", severity: critical, after: 5 * time.Minute,
			expr:    "max by (job, driver_name) (holdfast_lost_nodes) > 0",
			summary: "{{ $value }} nodes with volumes of {{ $labels.driver_name }} do not exist or are not ready.",
			impact:  "Volumes of a local backend cannot be reached; others stay attached to the lost node until they are detached.",
		},
	}, queues(clock)...)
}

// queues are the alerts about what all controllers share: queues and leases.
func queues(clock Clock) []alert {
	return []alert{
		{
			name: "HoldfastQueueStuck", severity: warning, after: 5 * time.Minute,
			expr: fmt.Sprintf("max by (job, instance, name) (holdfast_workqueue_oldest_seconds) > %s", clock.seconds(15*time.Minute)),
			summary: "The queue {{ $labels.name }} on {{ $labels.instance }} has an object that has waited for " +
				"{{ $value | humanizeDuration }}.",
			impact: "All workers are busy or hang. Claims, attachments and snapshots of this queue wait.",
		},
		{
			// A process that never led has no leader_election_master_status. Leases are
			// renewed every few seconds, however fast a test's clock is. The minimum is of one
			// cluster: its processes alone contend for the lease.
			name: "HoldfastNoLeader", severity: critical, after: time.Minute,
			expr:    "min by (cluster, namespace, job, name) (holdfast_lease_renew_age_seconds) > 60",
			summary: "No process has renewed the lease {{ $labels.name }} for {{ $value | humanizeDuration }}.",
			impact:  "The controllers of this lease do nothing: no volume is created, attached, expanded or deleted.",
		},
	}
}
