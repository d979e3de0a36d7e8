package bugreport

import (
	"context"
	"fmt"

	"github.com/holdfast-csi/holdfast/internal/host/api"
	"github.com/holdfast-csi/holdfast/internal/host/store"
)

// Host are the sources of a running host. Without one, each is missing.
func Host(client *api.Client) []Source {
	raw := func(path string) func(context.Context) ([]byte, error) {
		return func(ctx context.Context) ([]byte, error) { return client.Raw(ctx, path) }
	}
	objects := func(path string) func(context.Context) ([]byte, error) {
		return func(ctx context.Context) ([]byte, error) {
			data, err := client.Raw(ctx, path)
			if err != nil {
				return nil, err
			}
			return Objects(data)
		}
	}
	const own = "/apis/holdfast.dev/v1/"
	sources := []Source{
		{"host/version.json", "version of the host", raw(own + "version")},
		{"host/goroutines.txt", "what each goroutine of the host does", raw(own + "goroutines")},
		{"host/journal.json", "events and steps of the last day", objects(own + "journal")},
		{"host/drivers.json", "drivers, without the lines that they wrote", drivers(client)},
		{"host/pools.json", "pools", objects(own + "pools")},
		{"host/activity.json", "counters of the mounted volumes", objects(own + "activity")},
	}
	for _, kind := range store.Kinds() {
		path := "/api/v1/" + kind.Resource
		if kind.Group != "" {
			path = "/apis/" + kind.GroupVersion().String() + "/" + kind.Resource
		}
		about := "all " + kind.Resource
		if store.IsSealed(kind) {
			about += ", without their values"
		}
		sources = append(sources, Source{fmt.Sprintf("objects/%s.json", kind.Resource), about, objects(path)})
	}
	return sources
}

// drivers leaves out the lines that drivers of other vendors wrote, which may have anything.
func drivers(client *api.Client) func(context.Context) ([]byte, error) {
	return func(ctx context.Context) ([]byte, error) {
		all, err := client.Drivers(ctx)
		if err != nil {
			return nil, err
		}
		for i := range all {
			if all[i].Unit != nil {
				all[i].Unit.Log = nil
			}
		}
		return encode(all)
	}
}
