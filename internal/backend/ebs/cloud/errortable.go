package cloud

import "github.com/holdfast-csi/holdfast/internal/backend"

// table has the meaning of EC2's codes (EC2 API, "Error codes"). A code that is not
// in it is a fault, reported with its text. A name ending in ".*" is a family of
// codes.
var table = map[string]row{
	// The resource does not exist, or is in a state that does not allow it.
	"InvalidVolume.NotFound":             {backend.ErrNotFound, ""},
	"InvalidVolumeID.Malformed":          {backend.ErrNotFound, ""},
	"InvalidInstanceID.NotFound":         {backend.ErrNotFound, ""},
	"InvalidInstanceID.Malformed":        {backend.ErrNotFound, ""},
	"InvalidInstanceType":                {backend.ErrNotFound, ""},
	"InvalidAttachment.NotFound":         {backend.ErrNotFound, ""},
	"InvalidVolumeModification.NotFound": {backend.ErrNotFound, ""},
	"InvalidSnapshot.NotFound":           {backend.ErrNotFound, ""},
	"InvalidSnapshotID.Malformed":        {backend.ErrNotFound, ""},
	"VolumeInUse":                        {backend.ErrInUse, "detach it first"},
	"InvalidSnapshot.InUse":              {backend.ErrInUse, "remove what uses the snapshot, such as an image, first"},
	"SnapshotLocked":                     {backend.ErrInUse, "wait for the lock to end, or unlock the snapshot"},
	"IncorrectState":                     {backend.ErrBusy, ""},
	"IncorrectModificationState":         {backend.ErrBusy, "wait for the running modification"},
	"IncorrectInstanceState":             {backend.ErrPrecondition, "start the instance, or use another"},
	"InvalidVolume.ZoneMismatch":         {backend.ErrPrecondition, "volume and instance must be in one availability zone"},

	// Device names: the driver tries another name instead of returning these.
	"InvalidDevice.InUse":       {nil, ""},
	"InvalidBlockDeviceMapping": {nil, ""},

	// Quotas, and room.
	"AttachmentLimitExceeded":               {backend.ErrNoSpace, "the instance has no free slot; detach a volume or use a larger type"},
	"VolumeLimitExceeded":                   {backend.ErrNoSpace, "delete volumes or ask AWS to raise the quota"},
	"MaxIOPSLimitExceeded":                  {backend.ErrNoSpace, "ask for fewer IOPS or ask AWS to raise the quota"},
	"VolumeIOPSLimit":                       {backend.ErrNoSpace, "ask for fewer IOPS or ask AWS to raise the quota"},
	"VolumeModificationSizeLimitExceeded":   {backend.ErrNoSpace, "ask AWS to raise the quota on storage modifications"},
	"VolumeModificationRateExceeded":        {backend.ErrNoSpace, "wait until EC2 allows the next modification of this volume"},
	"SnapshotLimitExceeded":                 {backend.ErrNoSpace, "delete snapshots or ask AWS to raise the quota"},
	"ConcurrentSnapshotLimitExceeded":       {backend.ErrNoSpace, "wait for a pending snapshot of this volume"},
	"SnapshotCreationPerVolumeRateExceeded": {backend.ErrNoSpace, "wait 15 seconds before the next snapshot of this volume"},
	"ResourceLimitExceeded":                 {backend.ErrNoSpace, ""},
	"InsufficientVolumeCapacity":            {backend.ErrNoSpace, "the zone has no room; try another zone or volume type"},
	"InsufficientCapacity":                  {backend.ErrNoSpace, "the zone has no room; try another zone or volume type"},

	// The request is wrong.
	"IdempotentParameterMismatch": {backend.ErrExists, ""},
	"InvalidParameter":            {backend.ErrInvalid, ""},
	"InvalidParameterValue":       {backend.ErrInvalid, ""},
	"InvalidParameterCombination": {backend.ErrInvalid, ""},
	"InvalidParameterDependency":  {backend.ErrInvalid, ""},
	"MissingParameter":            {backend.ErrInvalid, ""},
	"UnknownParameter":            {backend.ErrInvalid, ""},
	"UnknownVolumeType":           {backend.ErrInvalid, ""},
	"ValidationError":             {backend.ErrInvalid, ""},
	"InvalidAvailabilityZone":     {backend.ErrInvalid, "name a zone of the driver's region"},
	"Unsupported":                 {backend.ErrInvalid, ""},
	"UnsupportedOperation":        {backend.ErrInvalid, ""},
	"OperationNotPermitted":       {backend.ErrInvalid, ""},
	"TagLimitExceeded":            {backend.ErrInvalid, "a resource has 50 tags at most"},
	"InvalidTagKey.Malformed":     {backend.ErrInvalid, ""},
	"InvalidKmsKey.*":             {backend.ErrInvalid, kmsAdvice},
	"InvalidKMSKey.*":             {backend.ErrInvalid, kmsAdvice},
	"KmsKeyNotFoundException":     {backend.ErrInvalid, kmsAdvice},
	"KMSKeyNotAccessibleFault":    {backend.ErrInvalid, kmsAdvice},
	"InvalidPaginationToken":      {backend.ErrStaleToken, "list from the start"},
	"InvalidNextToken":            {backend.ErrStaleToken, "list from the start"},
	"FilterLimitExceeded":         {nil, ""},

	// The caller may not.
	"UnauthorizedOperation":       {backend.ErrDenied, ""},
	"AccessDenied":                {backend.ErrDenied, ""},
	"AccessDeniedException":       {backend.ErrDenied, ""},
	"OptInRequired":               {backend.ErrDenied, ""},
	"Blocked":                     {backend.ErrDenied, ""},
	"PendingVerification":         {backend.ErrDenied, ""},
	"AuthFailure":                 {backend.ErrCredentials, credentialsAdvice},
	"InvalidClientTokenId":        {backend.ErrCredentials, credentialsAdvice},
	"UnrecognizedClientException": {backend.ErrCredentials, credentialsAdvice},
	"ExpiredToken":                {backend.ErrCredentials, credentialsAdvice},
	"ExpiredTokenException":       {backend.ErrCredentials, credentialsAdvice},
	"RequestExpired":              {backend.ErrCredentials, credentialsAdvice},
	"RequestTimeTooSkewed":        {backend.ErrCredentials, credentialsAdvice},
	"SignatureDoesNotMatch":       {backend.ErrCredentials, credentialsAdvice},
	"IncompleteSignature":         {backend.ErrCredentials, credentialsAdvice},
	"MissingAuthenticationToken":  {backend.ErrCredentials, credentialsAdvice},

	// EC2 has too much to do, or a fault.
	"RequestLimitExceeded":    {backend.ErrUnavailable, throttleAdvice},
	"Throttling":              {backend.ErrUnavailable, throttleAdvice},
	"ThrottlingException":     {backend.ErrUnavailable, throttleAdvice},
	"ThrottledException":      {backend.ErrUnavailable, throttleAdvice},
	"RequestThrottled":        {backend.ErrUnavailable, throttleAdvice},
	"EC2ThrottledException":   {backend.ErrUnavailable, throttleAdvice},
	"BandwidthLimitExceeded":  {backend.ErrUnavailable, throttleAdvice},
	"SlowDown":                {backend.ErrUnavailable, throttleAdvice},
	"InternalError":           {backend.ErrUnavailable, ""},
	"InternalFailure":         {backend.ErrUnavailable, ""},
	"Unavailable":             {backend.ErrUnavailable, ""},
	"ServiceUnavailable":      {backend.ErrUnavailable, ""},
	"RequestTimeout":          {backend.ErrUnavailable, ""},
	"RequestTimeoutException": {backend.ErrUnavailable, ""},
}

const throttleAdvice = "EC2 limits the rate of this call; the driver repeats it at a lower rate, " +
	"so wait longer or ask AWS to raise the limit"
