package world

import "time"

// # How requests and responses are written
//
// Each action has a struct <Action>Request, a struct <Action>Response and the
// method
//
//	func (w *World) <Action>(*<Action>Request) (*<Action>Response, error)
//
// whose error is always an *Error. Actions lists their names. A codec needs only the field
// tags `ec2:"name"` and these rules:
//
// Requests. The tag is the name of the query parameter.
//   - string: "" when absent.
//   - bool, int32, int64 behind a pointer: nil when absent. A plain bool is
//     false when absent.
//   - *string: nil when absent, "" when given without value. Only if EC2
//     distinguishes the two (TagToDelete.Value).
//   - *time.Time: ISO 8601 as in 2026-01-02T15:04:05.999Z, nil when absent.
//   - []string: Name.1, Name.2, …; []struct: Name.1.Field, Name.2.Field, …;
//     gaps in the numbers are skipped, the order is that of the numbers.
//   - struct, *struct: Name.Field; a pointer is nil without such a parameter.
//
// Responses. The tag is the name of the element.
//   - The elements of an embedded struct without a tag are written inline.
//   - string: omitted when "", unless the tag ends in ",always".
//   - bool, int32, int64: always written. Behind a pointer: omitted when nil.
//     An empty number element must never be written: SDKs fail on it.
//   - time.Time: RFC 3339 in UTC with milliseconds; omitted when zero.
//   - []string, []struct: the element with one <item> for each; an empty list is
//     an empty element, unless the tag ends in ",omitempty".
//   - struct: a nested element. *struct: omitted when nil.

// Filter is one filter of a describe: values are OR-ed, filters AND-ed.
type Filter struct {
	Name   string   `ec2:"Name"`
	Values []string `ec2:"Value"`
}

// Tag is a tag of a request.
type Tag struct {
	Key   string `ec2:"Key"`
	Value string `ec2:"Value"`
}

// TagToDelete is a tag of DeleteTags. Without Value the tag is removed with any value,
// with an empty Value only if its value is empty.
type TagToDelete struct {
	Key   string  `ec2:"Key"`
	Value *string `ec2:"Value"`
}

// TagSpecification is the tags for what an action creates.
type TagSpecification struct {
	ResourceType string `ec2:"ResourceType"`
	Tags         []Tag  `ec2:"Tag"`
}

// TagItem is a tag of a response.
type TagItem struct {
	Key   string `ec2:"key,always"`
	Value string `ec2:"value,always"`
}

// Page is the requested part of a listing.
type Page struct {
	MaxResults *int32 `ec2:"MaxResults"`
	NextToken  string `ec2:"NextToken"`
}

// Done is the answer of actions without output.
type Done struct {
	Return bool `ec2:"return"`
}

// CreateTagsRequest is the input of CreateTags; at most 1000 resources.
type CreateTagsRequest struct {
	DryRun      bool     `ec2:"DryRun"`
	ResourceIDs []string `ec2:"ResourceId"`
	Tags        []Tag    `ec2:"Tag"`
}

// CreateTagsResponse is the output of CreateTags.
type CreateTagsResponse struct{ Done }

// DeleteTagsRequest is the input of DeleteTags; without Tags it removes all user tags.
type DeleteTagsRequest struct {
	DryRun      bool          `ec2:"DryRun"`
	ResourceIDs []string      `ec2:"ResourceId"`
	Tags        []TagToDelete `ec2:"Tag"`
}

// DeleteTagsResponse is the output of DeleteTags.
type DeleteTagsResponse struct{ Done }

// DescribeTagsRequest is the input of DescribeTags.
type DescribeTagsRequest struct {
	DryRun  bool     `ec2:"DryRun"`
	Filters []Filter `ec2:"Filter"`
	Page
}

// DescribeTagsResponse is the output of DescribeTags.
type DescribeTagsResponse struct {
	Tags      []TagDescription `ec2:"tagSet"`
	NextToken string           `ec2:"nextToken"`
}

// TagDescription is one tag of one resource.
type TagDescription struct {
	ResourceID   string `ec2:"resourceId"`
	ResourceType string `ec2:"resourceType"`
	Key          string `ec2:"key,always"`
	Value        string `ec2:"value,always"`
}

// DescribeAvailabilityZonesRequest is the input of DescribeAvailabilityZones.
type DescribeAvailabilityZonesRequest struct {
	DryRun               bool     `ec2:"DryRun"`
	ZoneNames            []string `ec2:"ZoneName"`
	ZoneIDs              []string `ec2:"ZoneId"`
	AllAvailabilityZones bool     `ec2:"AllAvailabilityZones"`
	Filters              []Filter `ec2:"Filter"`
}

// DescribeAvailabilityZonesResponse is the output of DescribeAvailabilityZones.
type DescribeAvailabilityZonesResponse struct {
	Zones []AvailabilityZone `ec2:"availabilityZoneInfo"`
}

// AvailabilityZone is one zone of the region.
type AvailabilityZone struct {
	ZoneName           string `ec2:"zoneName"`
	ZoneID             string `ec2:"zoneId"`
	ZoneState          string `ec2:"zoneState"`
	RegionName         string `ec2:"regionName"`
	ZoneType           string `ec2:"zoneType"`
	GroupName          string `ec2:"groupName"`
	NetworkBorderGroup string `ec2:"networkBorderGroup"`
	OptInStatus        string `ec2:"optInStatus"`
	ParentZoneName     string `ec2:"parentZoneName"`
	ParentZoneID       string `ec2:"parentZoneId"`
}

// Actions names every action that World has a method for, in order.
func Actions() []string {
	return []string{
		"AttachVolume", "CopySnapshot", "CopyVolumes", "CreateSnapshot", "CreateSnapshots", "CreateTags",
		"CreateVolume", "DeleteSnapshot", "DeleteTags", "DeleteVolume", "DescribeAvailabilityZones",
		"DescribeFastSnapshotRestores", "DescribeInstanceTypes", "DescribeInstances", "DescribeLockedSnapshots",
		"DescribeSnapshots", "DescribeTags", "DescribeVolumeStatus", "DescribeVolumes",
		"DescribeVolumesModifications", "DetachVolume", "DisableFastSnapshotRestores",
		"EnableFastSnapshotRestores", "LockSnapshot", "ModifyVolume", "ModifyVolumeAttribute", "UnlockSnapshot",
	}
}

// Error is an error with EC2's code and text.
type Error struct {
	Code    string
	Message string
	Status  int // HTTP status
}

func (e *Error) Error() string { return e.Code + ": " + e.Message }

// Clock is the time of the world.
type Clock interface {
	Now() time.Time
	// AfterFunc calls f in its own goroutine after d; stop prevents that and
	// reports whether it did.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}
