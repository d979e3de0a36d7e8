// Package windows is a Windows machine in memory: it answers the calls of
// package win32 with the bytes and error numbers of Windows, on every system, so
// that all that is built on those calls is tested against its rules. Where
// Windows refuses it refuses, where Windows is lazy it is lazy: volumes arrive
// late, a grown disk is known after IOCTL_DISK_UPDATE_PROPERTIES and its GPT after
// IOCTL_DISK_UPDATE_DRIVE_SIZE, disk numbers change. Where Windows' own answer is not documented, the stricter one was taken.
//
// It does not import the packages that use it.
//
// # Tests in the same process
//
// New makes the machine, Calls a process on it. AddDisk, RemoveDisk, GrowDisk,
// AddShare, AddTarget, AddService and Reboot change the machine from outside;
// MkdirAll, WriteFile, Symlink, Junction, Rename, Remove and Open act as other
// programs on it, with the rules that Windows has for them. Inject makes calls
// fail, pretend, wait, hang or kill the process; Hook runs code of the test right
// before a call; Record lists calls. Losses lists the data that was overwritten, and Check
// the contradictions in the machine's state.
//
// A sweep of crashes traces an operation once, then runs it on a new machine for
// each call that changes something, with Fault{Changing: true, At: n, Action:
// DieBefore} and again with DieAfter, and lets a new process (Calls) repeat it.
//
// Delays are of package time, so a test in testing/synctest does not wait.
//
// # Tests in another process
//
// Control serves the machine over HTTP. Bodies and answers are JSON; names of
// fields are taken in any case, times are such as "250ms", errors are {"Error":
// "…"} with 404 for what is not there, 409 for what Windows refuses with a number,
// 400 else.
//
//	GET    /state                  disks, volumes, mappings, sessions, services, handles, losses
//	GET    /check                  {} or the error of Check
//	POST   /reboot
//	POST   /disks                  {serial, page83, size, sectorSize, bus, location: {port, path, target, lun}, offline,
//	                               readOnly, style: ""|mbr|gpt|data, fileSystem, dataSize, driveLetter, noise,
//	                               bytes: {offset: hex}, arrivesAfter, needsRescan, broken} → {"Number": N}
//	DELETE /disks/N
//	POST   /disks/N/grow           {size}
//	POST   /disks/N/move           pulls it out and in again → {"Number": N}
//	POST   /disks/N/clone          {serial}: a copy, as from a snapshot → {"Number": N}
//	POST   /options                {volumeDelay, deviceDelay, listDelay, formatDelay, sessionBusy, deletePending,
//	                               usableLag, sanPolicy: 0 shared disks offline, 1 all online,
//	                               2 all offline; biosSerial}: what is given changes
//	POST   /shares                 {server, share, users: {name: password}, denied, noEncryption, privacyError, total, free}
//	POST   /targets                {address, port, iqn, user, secret, mutualSecret, luns: [as /disks]}
//	POST   /servers                {server and/or iqn, reachable}
//	POST   /services               {name, displayName, startType, running, dependsOn, startDelay, stopDelay, startError}
//	POST   /files                  {path, kind: directory|file|symlink|junction, target, size}
//	GET    /files?path=P           {Name, Attributes, ReparseTag, Target, Entries}
//	DELETE /files?path=P
//	POST   /faults                 {call, target, changing, at, times, action: fail|fail-after|pretend|delay|hang|
//	                               die-before|die-after, errno, for} → {"ID": N}
//	GET    /faults/N               {ID, Hits, Waiting}
//	POST   /faults/N/release
//	DELETE /faults/N
package windows
