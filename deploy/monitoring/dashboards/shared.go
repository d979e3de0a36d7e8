package dashboards

import (
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"github.com/holdfast-csi/holdfast/deploy/monitoring/rules"
)

// window of rates that Grafana fits to the resolution of a panel.
const window = "$__rate_interval"

// one selects the instance of a dashboard about one process or machine; all selects
// by the job of a dashboard about many.
const (
	one = `{job=~"$job", instance="$instance"}`
	all = `{job=~"$job"}`
)

func jobs(metric string) cog.Builder[dashboard.VariableModel] {
	return choice("job", "Job", metric, "job", true)
}

// instances are those that have a metric.
func instances(metric string) cog.Builder[dashboard.VariableModel] {
	return choice("instance", "Instance", metric+all, "instance", false)
}

// pools is the row about the pools that a selector selects.
func pools(selector string) row {
	where := "{{instance}} {{pool}}"
	return row{"Pools", []panel{
		lines("Space used", ratio, "Part of the pool that is used.",
			query{"1 - holdfast:pool_available:ratio" + selector, where}),
		lines("What uses the space", bytes, "Volumes, snapshots, copies that are not complete, deleted files that are being removed, and other files.",
			query{"sum by (kind) (holdfast_pool_used_bytes" + selector + ")", "{{kind}}"}),
		lines("Promised", bytes, "Sizes of all volumes, next to the size of the pool: thin volumes may promise more than there is.",
			query{"holdfast_pool_promised_bytes" + selector, "promised " + where},
			query{"holdfast_pool_size_bytes" + selector, "size " + where}),
		lines("Time to full", seconds, "At the rate of the last 24 hours. Pools that do not grow have no line.",
			query{"holdfast_pool_full_seconds" + selector + " < +Inf", where}),
		lines("Thin ratio", ratio, "Promised bytes for each byte of the pool.", query{"holdfast_pool_thin_ratio" + selector, where}),
		lines("Inodes free", ratio, "Part of the inodes that is free.", query{"holdfast:pool_inodes_free:ratio" + selector, where}),
	}}
}

// volumes is the row about states and conditions of volumes.
func volumes(selector string) row {
	return row{"Volumes", []panel{
		lines("Volumes by state", number, "", query{"sum by (driver_name, state) (holdfast_volumes" + selector + ")", "{{driver_name}} {{state}}"}),
		lines("Abnormal volumes", number, "Volumes by their abnormal condition.",
			query{"sum by (driver_name, condition) (holdfast_volume_condition" + selector + ")", "{{driver_name}} {{condition}}"}),
		lines("Frozen and unresponsive filesystems", number, "Processes that use these volumes wait.",
			query{"sum by (driver_name) (holdfast_filesystem_frozen" + selector + ")", "{{driver_name}} frozen"},
			query{"sum by (driver_name) (holdfast_volume_unresponsive" + selector + ")", "{{driver_name}} unresponsive"}),
	}}
}

// operations is the row about objects that wait for their operations, as those who
// retry them see it: controllers, or the host.
func operations(selector string) row {
	return row{"Operations", []panel{
		lines("Unfinished operations", number, "By kind, and by the code of the last failure.",
			query{"sum by (kind, reason) (holdfast_operations" + selector + ")", "{{kind}} {{reason}}"}),
		lines("Oldest unfinished operation", seconds, "",
			query{"max by (kind, reason) (holdfast_operation_oldest_seconds" + selector + ")", "{{kind}} {{reason}}"}),
	}}
}

// steps is the row about the steps of a driver, or of the host.
func steps(title, histogram, selector string) row {
	quantile := func(q float64) string { return rules.Quantile(q, histogram, selector, "driver_name, step", window) }
	return row{title, []panel{
		lines("Steps", perSecond, "By outcome.", query{observations(histogram, selector, "step, outcome"), "{{step}} {{outcome}}"}),
		lines("Duration, median", seconds, "", query{quantile(0.5), "{{step}}"}),
		lines("Duration, 99 %", seconds, "", query{quantile(0.99), "{{step}}"}),
	}}
}

// calls is the row about the CSI calls of a driver.
func calls(selector string) row {
	return row{"CSI calls", []panel{
		lines("Calls", perSecond, "", query{observations("holdfast_rpc_seconds", selector, "method"), "{{method}}"}),
		lines("Calls by code", perSecond, "", query{observations("holdfast_rpc_seconds", selector, "code"), "{{code}}"}),
		lines("Duration, 99 %", seconds, "", query{rules.Quantile(0.99, "holdfast_rpc_seconds", selector, "method", window), "{{method}}"}),
		lines("Calls in flight", number, "", query{"sum by (instance) (holdfast_rpc_in_flight" + selector + ")", "{{instance}}"}),
		lines("Unfinished calls", number, "Calls that run, and calls that failed and were not repeated with success.",
			query{"sum by (method, reason) (holdfast_rpc_unfinished" + selector + ")", "{{method}} {{reason}}"}),
		lines("Oldest unfinished call", seconds, "",
			query{"max by (method, reason) (holdfast_rpc_oldest_seconds" + selector + ")", "{{method}} {{reason}}"}),
	}}
}

// processes is the row about the processes themselves.
func processes(selector string) row {
	return row{"Processes", []panel{
		lines("Resident memory", bytes, "", query{"process_resident_memory_bytes" + selector, "{{job}} {{instance}}"}),
		lines("CPU", number, "Cores in use.", query{rate("process_cpu_seconds_total", selector, "job, instance"), "{{job}} {{instance}}"}),
		lines("Goroutines", number, "", query{"go_goroutines" + selector, "{{job}} {{instance}}"}),
		lines("Open files", number, "", query{"process_open_fds" + selector, "{{job}} {{instance}}"}),
	}}
}

// queues is the row about the queues of controllers.
func queues(selector string) row {
	return row{"Queues", []panel{
		lines("Objects that wait", number, "", query{"sum by (name) (workqueue_depth" + selector + ")", "{{name}}"}),
		lines("Oldest object that waits", seconds, "", query{"max by (name) (holdfast_workqueue_oldest_seconds" + selector + ")", "{{name}}"}),
		lines("Longest running", seconds, "The object on which a worker has worked longest.",
			query{"max by (name) (workqueue_longest_running_processor_seconds" + selector + ")", "{{name}}"}),
		lines("Objects processed", perSecond, "", query{rate("workqueue_adds_total", selector, "name"), "{{name}}"}),
	}}
}
