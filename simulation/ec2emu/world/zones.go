package world

import "strings"

// threeZones are the usual ones of a region: us-west-2a has ID usw2-az1.
func threeZones(region string) []Zone {
	short := ""
	for i, part := range strings.Split(region, "-") {
		switch i {
		case 0:
			short = part
		default:
			short += strings.NewReplacer("north", "n", "south", "s", "east", "e", "west", "w", "central",
				"c").Replace(part)
		}
	}
	var zones []Zone
	for i, letter := range []string{"a", "b", "c"} {
		zones = append(zones, Zone{Name: region + letter, ID: short + "-az" + string(rune('1'+i))})
	}
	return zones
}

func (w *World) zone(name string) *Zone {
	for i := range w.zones {
		if w.zones[i].Name == name {
			return &w.zones[i]
		}
	}
	return nil
}

// pickZone is the zone of a request, by name or by ID.
func (w *World) pickZone(name, id string) (string, *Error) {
	switch {
	case name != "" && id != "":
		return "", combination("The parameters availabilityZone and availabilityZoneId cannot be used together.")
	case name == "" && id == "":
		return "", missing("availabilityZone")
	}
	for _, z := range w.zones {
		if (z.Name == name || z.ID == id) && !z.NotOptedIn {
			return z.Name, nil
		}
	}
	return "", refuse("InvalidAvailabilityZone", "The zone '%s' does not exist.", name+id)
}

func (w *World) zoneID(name string) string {
	if z := w.zone(name); z != nil {
		return z.ID
	}
	return ""
}

func zoneFilters() filterTable[AvailabilityZone] {
	return filterTable[AvailabilityZone]{
		"zone-name":            func(z *AvailabilityZone) []string { return []string{z.ZoneName} },
		"zone-id":              func(z *AvailabilityZone) []string { return []string{z.ZoneID} },
		"state":                func(z *AvailabilityZone) []string { return []string{z.ZoneState} },
		"zone-state":           func(z *AvailabilityZone) []string { return []string{z.ZoneState} },
		"zone-type":            func(z *AvailabilityZone) []string { return []string{z.ZoneType} },
		"region-name":          func(z *AvailabilityZone) []string { return []string{z.RegionName} },
		"group-name":           func(z *AvailabilityZone) []string { return []string{z.GroupName} },
		"network-border-group": func(z *AvailabilityZone) []string { return []string{z.NetworkBorderGroup} },
		"opt-in-status":        func(z *AvailabilityZone) []string { return []string{z.OptInStatus} },
		"parent-zone-name":     func(z *AvailabilityZone) []string { return []string{z.ParentZoneName} },
		"parent-zone-id":       func(z *AvailabilityZone) []string { return []string{z.ParentZoneID} },
	}
}

// DescribeAvailabilityZones lists the zones of the region. A name or ID that
// does not exist fails the whole call.
func (w *World) DescribeAvailabilityZones(
	r *DescribeAvailabilityZonesRequest,
) (_ *DescribeAvailabilityZonesResponse, err error) {
	defer w.read(&err)()
	matches, refusal := compileFilters(r.Filters, zoneFilters(), nil)
	if refusal != nil {
		return nil, refusal
	}
	named := func(names []string, have func(Zone) string) *Error {
		for _, name := range names {
			if !anyOf(w.zones, func(z Zone) bool { return have(z) == name }) {
				return invalid("Invalid availability zone: [%s]", name)
			}
		}
		return nil
	}
	if refusal := named(r.ZoneNames, func(z Zone) string { return z.Name }); refusal != nil {
		return nil, refusal
	}
	if refusal := named(r.ZoneIDs, func(z Zone) string { return z.ID }); refusal != nil {
		return nil, refusal
	}
	if r.DryRun {
		return nil, dryRunPassed()
	}
	answer := &DescribeAvailabilityZonesResponse{}
	for _, z := range w.zones {
		item := w.describeZone(z)
		if (z.NotOptedIn && !r.AllAvailabilityZones) || !selected(r.ZoneNames, z.Name) || !selected(r.ZoneIDs,
			z.ID) || !matches(&item) {
			continue
		}
		answer.Zones = append(answer.Zones, item)
	}
	return answer, nil
}

func (w *World) describeZone(z Zone) AvailabilityZone {
	item := AvailabilityZone{
		ZoneName: z.Name, ZoneID: z.ID, ZoneState: orElse(z.State, "available"), RegionName: w.region,
		ZoneType: orElse(z.Type, "availability-zone"), GroupName: w.region, NetworkBorderGroup: w.region,
		OptInStatus: "opt-in-not-required", ParentZoneName: z.Parent,
	}
	if z.NotOptedIn {
		item.OptInStatus = "not-opted-in"
	}
	if z.Parent != "" {
		item.ParentZoneID = w.zoneID(z.Parent)
	}
	return item
}

// selected reports whether an item is among the named ones; an empty list names all.
func selected(named []string, one string) bool {
	return len(named) == 0 || anyOf(named, func(n string) bool { return n == one })
}

func anyOf[T any](all []T, is func(T) bool) bool {
	for _, one := range all {
		if is(one) {
			return true
		}
	}
	return false
}
