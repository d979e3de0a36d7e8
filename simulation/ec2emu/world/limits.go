package world

import "strings"

// TypeLimits are the limits of a volume type (AWS, EBS volume types). Sizes are in GiB,
// throughput in MiB/s. With a maximum of 0 the value cannot be set.
type TypeLimits struct {
	MinSize       int32 `json:"minSize"`
	MaxSize       int32 `json:"maxSize"`
	MinIOPS       int32 `json:"minIops,omitempty"`
	MaxIOPS       int32 `json:"maxIops,omitempty"`
	IOPSPerGiB    int32 `json:"iopsPerGiB,omitempty"`
	MinThroughput int32 `json:"minThroughput,omitempty"`
	MaxThroughput int32 `json:"maxThroughput,omitempty"`
	// DefaultIOPS is 0 where IOPS must be given.
	DefaultIOPS int32 `json:"defaultIops,omitempty"`
}

const throughputPerIOPS = 0.25 // MiB/s, gp3

func typeLimits() map[string]TypeLimits {
	return map[string]TypeLimits{
		"gp3": {MinSize: 1, MaxSize: 65536, MinIOPS: 3000, MaxIOPS: 80000, IOPSPerGiB: 500, DefaultIOPS: 3000,
			MinThroughput: 125, MaxThroughput: 2000},
		"gp2":      {MinSize: 1, MaxSize: 16384},
		"io1":      {MinSize: 4, MaxSize: 16384, MinIOPS: 100, MaxIOPS: 64000, IOPSPerGiB: 50},
		"io2":      {MinSize: 4, MaxSize: 65536, MinIOPS: 100, MaxIOPS: 256000, IOPSPerGiB: 1000},
		"st1":      {MinSize: 125, MaxSize: 16384},
		"sc1":      {MinSize: 125, MaxSize: 16384},
		"standard": {MinSize: 1, MaxSize: 1024},
	}
}

// limits are those of a type in a zone.
func (w *World) limits(zone, volumeType string) (TypeLimits, *Error) {
	if z := w.zone(zone); z != nil {
		if special, ok := z.Limits[volumeType]; ok {
			return special, nil
		}
	}
	l, ok := w.types[volumeType]
	if !ok {
		return l, refuse("UnknownVolumeType", "Unsupported volume type '%s' for volume creation.", volumeType)
	}
	return l, nil
}

// shapeRequest is the shape in a request; a field that it lacks is nil.
type shapeRequest struct {
	volumeType       string
	size             int32
	iops, throughput *int32
	multi            bool
}

// resolveShape checks a request against the limits and adds defaults. The order of the
// checks is the order in which EC2 reports several errors, if clients rely on it: the
// range of IOPS before their ratio.
func (w *World) resolveShape(zone string, ask shapeRequest) (shape, *Error) {
	l, err := w.limits(zone, ask.volumeType)
	if err != nil {
		return shape{}, err
	}
	s := shape{Type: ask.volumeType, Size: ask.size, Multi: ask.multi}
	if err := checkSize(ask.size, l); err != nil {
		return s, err
	}
	if s.IOPS, err = resolveIOPS(ask, l); err != nil {
		return s, err
	}
	if s.Throughput, err = resolveThroughput(ask, s.IOPS, l); err != nil {
		return s, err
	}
	if ask.multi && ask.volumeType != "io1" && ask.volumeType != "io2" {
		return s, combination("Multi-Attach is supported for io1 and io2 volumes only; the volume type is %s.",
			ask.volumeType)
	}
	return s, nil
}

func checkSize(size int32, l TypeLimits) *Error {
	switch {
	case size < l.MinSize:
		return invalid("Volume of %dGiB is too small; minimum is %dGiB.", size, l.MinSize)
	case size > l.MaxSize:
		return invalid("Volume of %dGiB is too large; maximum is %dGiB.", size, l.MaxSize)
	}
	return nil
}

func resolveIOPS(ask shapeRequest, l TypeLimits) (int32, *Error) {
	if l.MaxIOPS == 0 {
		if ask.iops != nil {
			return 0, combination("The parameter iops is not supported for %s volumes.", ask.volumeType)
		}
		return fixedIOPS(ask), nil
	}
	if ask.iops == nil {
		if l.DefaultIOPS == 0 {
			return 0, refuse("MissingParameter", "The parameter iops must be specified for %s volumes.", ask.volumeType)
		}
		return l.DefaultIOPS, nil
	}
	iops := *ask.iops
	switch {
	case iops < l.MinIOPS:
		return 0, invalid("Volume iops of %d is too low; minimum is %d.", iops, l.MinIOPS)
	case iops > l.MaxIOPS && ask.volumeType == "io2":
		// The text gives the maximum in thousands, unlike that of the other types.
		return 0, invalid("io2 volumes configured with more than %d TiB or %dK IOPS are not supported.",
			l.MaxSize/1024, l.MaxIOPS/1000)
	case iops > l.MaxIOPS:
		return 0, invalid("Volume iops of %d is too high; maximum is %d.", iops, l.MaxIOPS)
	case int64(iops) > int64(l.IOPSPerGiB)*int64(ask.size) && iops > l.DefaultIOPS:
		return 0, invalid("Iops to volume size ratio of %.1f is too high; maximum is %.1f.",
			float64(iops)/float64(ask.size), float64(l.IOPSPerGiB))
	}
	return iops, nil
}

// fixedIOPS are the IOPS that EC2 shows for types whose IOPS follow from the size: gp2 has
// 3 per GiB; the others show none.
func fixedIOPS(ask shapeRequest) int32 {
	if ask.volumeType != "gp2" {
		return 0
	}
	return min(max(3*ask.size, 100), 16000)
}

func resolveThroughput(ask shapeRequest, iops int32, l TypeLimits) (int32, *Error) {
	if l.MaxThroughput == 0 {
		if ask.throughput != nil {
			return 0, combination("The parameter throughput is not supported for %s volumes.", ask.volumeType)
		}
		return 0, nil
	}
	if ask.throughput == nil {
		return l.MinThroughput, nil
	}
	throughput := *ask.throughput
	switch {
	case throughput < l.MinThroughput:
		return 0, invalid("Volume throughput of %d MiBps is too low; minimum is %d MiBps.", throughput, l.MinThroughput)
	case throughput > l.MaxThroughput:
		return 0, invalid("Volume throughput of %d MiBps is too high; maximum is %d MiBps.",
			throughput, l.MaxThroughput)
	case float64(throughput) > throughputPerIOPS*float64(iops):
		return 0, invalid("Throughput (MiBps) to iops ratio of %.6f is too high; maximum is %.6f MiBps per iops.",
			float64(throughput)/float64(iops), throughputPerIOPS)
	}
	return throughput, nil
}

func slow(volumeType string) bool { return volumeType == "st1" || volumeType == "sc1" }

// io1Shares names the regions where io1 volumes can be multi-attach.
func (w *World) io1Shares() bool {
	regions := w.knobs.Attach.MultiAttachIO1
	if regions == nil {
		regions = []string{"us-east-1", "us-west-1", "us-west-2", "ap-northeast-2"}
	}
	return strings.Contains(" "+strings.Join(regions, " ")+" ", " "+w.region+" ")
}
