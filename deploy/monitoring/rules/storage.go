package rules

import "time"

// pool names the subject of an alert about a pool.
const pool = "The pool {{ $labels.pool }} of {{ $labels.driver_name }} on {{ $labels.instance }}"

// storage are the alerts about pools, volumes and their filesystems.
func storage(Clock) []alert {
	return append([]alert{
		{
			name: "HoldfastPoolNearlyFull", severity: warning, after: 15 * time.Minute,
			expr:    "holdfast:pool_available:ratio < 0.1",
			summary: pool + " has {{ $value | humanizePercentage }} of its space left.",
			impact:  "Thin volumes share this space. When it is used up, writes to all of them fail, and new volumes are refused.",
		},
		{
			name: "HoldfastPoolFull", severity: critical, after: 2 * time.Minute,
			expr:    "holdfast:pool_available:ratio < 0.02",
			summary: pool + " is full: {{ $value | humanizePercentage }} of its space is left.",
			impact:  "Writes to thin volumes fail or are about to fail with ENOSPC, and new volumes are refused.",
		},
		{
			name: "HoldfastPoolFullSoon", severity: warning, after: time.Hour,
			expr:    "holdfast_pool_full_seconds < 24 * 3600",
			summary: pool + " will be full in {{ $value | humanizeDuration }} at the rate of the last day.",
			impact:  "When the space is used up, writes to thin volumes fail, and new volumes are refused.",
		},
		{
			name: "HoldfastPoolInodesLow", severity: warning, after: 15 * time.Minute,
			expr:    "holdfast:pool_inodes_free:ratio < 0.05",
			summary: pool + " has {{ $value | humanizePercentage }} of its inodes left.",
			impact:  "Each volume and snapshot needs some inodes. Without them none can be created, although there is space.",
		},
		{
			name: "HoldfastPoolUnusable", severity: critical, after: time.Minute,
			expr:    `holdfast_pool_condition{condition=~"PoolReadOnly|PoolUnreachable|PoolUnresponsive"} == 1`,
			summary: pool + " reports {{ $labels.condition }}.",
			impact:  "No volume of the pool can be created, changed or deleted, and I/O of volumes in use fails or is about to fail.",
		},
		{
			name: "HoldfastPoolDegraded", severity: warning, after: time.Hour,
			expr:    `holdfast_pool_condition{condition!~"PoolReadOnly|PoolUnreachable|PoolUnresponsive|PoolNearlyFull"} == 1`,
			summary: pool + " reports {{ $labels.condition }} for an hour.",
			impact:  "Space is not given back, or volumes have records that the driver cannot use. Volumes in use are not affected.",
		},
	}, volumes()...)
}

func volumes() []alert {
	return []alert{
		{
			name: "HoldfastVolumeAbnormal", severity: critical, after: 2 * time.Minute,
			expr:    "holdfast_volume_condition > 0",
			summary: "{{ $value }} volumes of {{ $labels.driver_name }} on {{ $labels.instance }} have the condition {{ $labels.condition }}.",
			impact:  "Workloads that use these volumes fail to write, or to read.",
		},
		{
			name: "HoldfastFilesystemFrozen", severity: critical, after: 2 * time.Minute,
			expr:    "holdfast_filesystem_frozen > 0",
			summary: "{{ $value }} filesystems of {{ $labels.driver_name }} on {{ $labels.instance }} are frozen.",
			impact:  "Every write to these volumes waits until the filesystem is thawed.",
		},
		{
			name: "HoldfastVolumeUnresponsive", severity: critical, after: 2 * time.Minute,
			expr:    "holdfast_volume_unresponsive > 0",
			summary: "{{ $value }} volumes of {{ $labels.driver_name }} on {{ $labels.instance }} do not answer.",
			impact:  "Processes that use these volumes hang, and cannot be killed while they do.",
		},
		{
			name: "HoldfastVolumeHealthStale", severity: warning, after: time.Hour,
			expr:    "holdfast_volume_health_stale_volumes > 0",
			summary: "{{ $labels.driver_name }}: {{ $value }} volumes have no recent health report.",
			impact:  "A volume that fails is not noticed. The volumes themselves may be well.",
		},
		{
			name: "HoldfastClaimUnhealthy", severity: warning, after: 10 * time.Minute,
			expr:    "csi_controller_volume_health_status == 1",
			summary: "The driver {{ $labels.driver_name }} reports {{ $labels.reason }} of the claim {{ $labels.namespace }}/{{ $labels.persistentvolumeclaim }}.",
			impact:  "The workload of the claim may lose access to its data.",
		},
	}
}
