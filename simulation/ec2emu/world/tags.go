package world

import (
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// Limits of tags (EC2 user guide, Tag restrictions).
const (
	maxTags      = 50
	maxTagKey    = 128
	maxTagValue  = 256
	maxResources = 1000 // of CreateTags and DeleteTags
)

// tagsFor are the tags of a resource to create: all specifications must be for that kind
// of resource.
func tagsFor(resource string, specifications []TagSpecification) (tags, *Error) {
	t := tags{}
	for _, s := range specifications {
		if s.ResourceType != resource {
			return nil, invalid("'%s' is not a valid taggable resource type for this operation.", s.ResourceType)
		}
		if refusal := checkTags(s.Tags); refusal != nil {
			return nil, refusal
		}
		for _, one := range s.Tags {
			if _, twice := t[one.Key]; twice {
				return nil, invalid("Duplicate tag key '%s' specified.", one.Key)
			}
			t[one.Key] = one.Value
		}
	}
	return t, checkTagCount(t)
}

func checkTags(list []Tag) *Error {
	seen := map[string]bool{}
	for _, t := range list {
		switch {
		case t.Key == "":
			return refuse("InvalidTagKey.Malformed", "Tag keys cannot be empty.")
		case utf8.RuneCountInString(t.Key) > maxTagKey:
			return refuse("InvalidTagKey.Malformed", "Tag key exceeds the maximum length of %d characters: %s",
				maxTagKey, t.Key)
		case strings.HasPrefix(strings.ToLower(t.Key), "aws:"):
			return invalid("Tag keys starting with 'aws:' are reserved for internal use: %s", t.Key)
		case utf8.RuneCountInString(t.Value) > maxTagValue:
			return invalid("Tag value exceeds the maximum length of %d characters.", maxTagValue)
		case seen[t.Key]:
			return invalid("Duplicate tag key '%s' specified.", t.Key)
		}
		seen[t.Key] = true
	}
	return nil
}

func checkTagCount(t tags) *Error {
	if len(t) > maxTags {
		return refuse("TagLimitExceeded", "The maximum number of Tags for a resource has been reached: %d.", maxTags)
	}
	return nil
}

// taggable is a resource for the actions on tags.
type taggable struct {
	kind  string
	tags  tags
	order int64
	id    string
	touch func()
}

// resource finds a resource with tags by its ID.
func (w *World) resource(id string) (taggable, *Error) {
	switch {
	case strings.HasPrefix(id, "vol-"):
		v, refusal := w.findVolume(id)
		if refusal != nil {
			return taggable{}, refusal
		}
		return taggable{kind: "volume", tags: v.Tags, order: v.Order, id: id, touch: func() { w.touchVolume(v) }}, nil
	case strings.HasPrefix(id, "snap-"):
		s, refusal := w.findSnapshot(id)
		if refusal != nil {
			return taggable{}, refusal
		}
		return taggable{kind: "snapshot",
			tags: s.Tags, order: s.Order, id: id, touch: func() { w.touchSnapshot(s) }}, nil
	case strings.HasPrefix(id, "i-"):
		i, refusal := w.findInstance(id)
		if refusal != nil {
			return taggable{}, refusal
		}
		return taggable{kind: "instance",
			tags: i.Tags, order: i.Order, id: id, touch: func() { w.touchInstance(i) }}, nil
	}
	return taggable{}, refuse("InvalidID", "The ID '%s' is not valid", id)
}

func (w *World) resources(ids []string) ([]taggable, *Error) {
	switch {
	case len(ids) == 0:
		return nil, missing("resourceIdSet")
	case len(ids) > maxResources:
		return nil, invalid("The maximum number of resources for a single call is %d.", maxResources)
	}
	var all []taggable
	for _, id := range ids {
		one, refusal := w.resource(id)
		if refusal != nil {
			return nil, refusal
		}
		all = append(all, one)
	}
	return all, nil
}

// CreateTags sets tags, on all resources or on none.
func (w *World) CreateTags(r *CreateTagsRequest) (_ *CreateTagsResponse, err error) {
	w.begin()
	defer w.end(&err)
	if len(r.Tags) == 0 {
		return nil, missing("tagSet")
	}
	if refusal := checkTags(r.Tags); refusal != nil {
		return nil, refusal
	}
	all, refusal := w.resources(r.ResourceIDs)
	if refusal != nil {
		return nil, refusal
	}
	for _, one := range all {
		after := cloneTags(one.tags)
		for _, t := range r.Tags {
			after[t.Key] = t.Value
		}
		if refusal := checkTagCount(after); refusal != nil {
			return nil, refusal
		}
	}
	if r.DryRun {
		return nil, dryRunPassed()
	}
	for _, one := range all {
		one.touch()
		for _, t := range r.Tags {
			one.tags[t.Key] = t.Value
		}
	}
	return &CreateTagsResponse{Done{true}}, nil
}

// DeleteTags removes tags; a missing tag is not an error.
func (w *World) DeleteTags(r *DeleteTagsRequest) (_ *DeleteTagsResponse, err error) {
	w.begin()
	defer w.end(&err)
	all, refusal := w.resources(r.ResourceIDs)
	if refusal != nil {
		return nil, refusal
	}
	for _, t := range r.Tags {
		if strings.HasPrefix(strings.ToLower(t.Key), "aws:") {
			return nil, invalid("Tag keys starting with 'aws:' are reserved for internal use: %s", t.Key)
		}
	}
	if r.DryRun {
		return nil, dryRunPassed()
	}
	for _, one := range all {
		one.touch()
		if len(r.Tags) == 0 {
			clear(one.tags)
		}
		for _, t := range r.Tags {
			if value, ok := one.tags[t.Key]; ok && (t.Value == nil || *t.Value == value) {
				delete(one.tags, t.Key)
			}
		}
	}
	return &DeleteTagsResponse{Done{true}}, nil
}

// tagRow is a tag of a listing.
type tagRow struct {
	order int64
	TagDescription
}

func tagFilters() filterTable[tagRow] {
	return filterTable[tagRow]{
		"resource-id":   func(t *tagRow) []string { return []string{t.ResourceID} },
		"resource-type": func(t *tagRow) []string { return []string{t.ResourceType} },
		"key":           func(t *tagRow) []string { return []string{t.Key} },
		"value":         func(t *tagRow) []string { return []string{t.Value} },
	}
}

// DescribeTags lists the tags of all resources.
func (w *World) DescribeTags(r *DescribeTagsRequest) (_ *DescribeTagsResponse, err error) {
	defer w.read(&err)()
	matches, refusal := compileFilters(r.Filters, tagFilters(), func(t *tagRow) tags { return tags{t.Key: t.Value} })
	if refusal != nil {
		return nil, refusal
	}
	p, refusal := w.openPage(r.Page, maxPage, []any{"tags", r.Filters})
	if refusal != nil {
		return nil, refusal
	}
	if r.DryRun {
		return nil, dryRunPassed()
	}
	chosen, next := paginate(p, w.tagRows(), func(t *tagRow) int64 { return t.order }, matches)
	answer := &DescribeTagsResponse{NextToken: next}
	for _, t := range chosen {
		answer.Tags = append(answer.Tags, t.TagDescription)
	}
	return answer, nil
}

// tagRows are all tags in order: by resource, then by key.
func (w *World) tagRows() []*tagRow {
	var all []taggable
	for _, v := range w.Volumes {
		all = append(all, taggable{kind: "volume", id: v.ID, order: v.Order, tags: w.tagsOfVolume(v)})
	}
	for _, s := range w.Snapshots {
		if s.Owner == "" {
			all = append(all, taggable{kind: "snapshot", id: s.ID, order: s.Order, tags: w.tagsOfSnapshot(s)})
		}
	}
	for _, i := range w.Instances {
		all = append(all, taggable{kind: "instance", id: i.ID, order: i.Order, tags: i.Tags})
	}
	slices.SortFunc(all, func(a, b taggable) int { return int(a.order - b.order) })
	var rows []*tagRow
	for _, one := range all {
		for n, key := range slices.Sorted(maps.Keys(one.tags)) {
			rows = append(rows, &tagRow{one.order*(maxTags+1) + int64(n),
				TagDescription{ResourceID: one.id, ResourceType: one.kind, Key: key, Value: one.tags[key]}})
		}
	}
	return rows
}
