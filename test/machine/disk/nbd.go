package disk

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
)

// The numbers of the NBD protocol, as its document doc/proto.md has them.
const (
	magicHello   = 0x4e42444d41474943 // NBDMAGIC
	magicOption  = 0x49484156454f5054 // IHAVEOPT
	magicReply   = 0x3e889045565a9
	magicRequest = 0x25609513
	magicSimple  = 0x67446698

	flagFixedNewstyle = 1 << 0
	flagNoZeroes      = 1 << 1

	optionAbort = 2
	optionGo    = 7

	replyAcknowledge = 1
	replyInformation = 3
	replyUnsupported = 1<<31 + 1
	informExport     = 0

	transmitHasFlags = 1 << 0
	transmitFlush    = 1 << 2

	commandRead  = 0
	commandWrite = 1
	commandLeave = 2
	commandFlush = 3

	errorIO      = 5
	errorInvalid = 22

	// maxRequest bounds what one request moves, and so the memory that it takes.
	maxRequest = 32 << 20
)

// Serve serves the disk to the connections of a listener, one after another, until
// the context ends.
func (d *Disk) Serve(ctx context.Context, listener net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	defer stop()
	for {
		connection, err := listener.Accept()
		if err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("accept the emulator's connection: %w", err)
		}
		err = d.serveOne(ctx, connection)
		// A killed emulator leaves in the middle of anything.
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && ctx.Err() == nil {
			if _, ok := errors.AsType[*net.OpError](err); !ok {
				return err
			}
		}
	}
}

func (d *Disk) serveOne(ctx context.Context, connection net.Conn) error {
	d.serving.Lock()
	defer d.serving.Unlock()
	stop := context.AfterFunc(ctx, func() { _ = connection.Close() })
	defer stop()
	defer func() { _ = connection.Close() }()
	if err := d.negotiate(connection); err != nil {
		return err
	}
	for {
		if leave, err := d.answer(connection); leave || err != nil {
			return err
		}
	}
}

// negotiate answers options until the client takes the export.
func (d *Disk) negotiate(connection net.Conn) error {
	hello := binary.BigEndian.AppendUint64(nil, magicHello)
	hello = binary.BigEndian.AppendUint64(hello, magicOption)
	hello = binary.BigEndian.AppendUint16(hello, flagFixedNewstyle|flagNoZeroes)
	if _, err := connection.Write(hello); err != nil {
		return err
	}
	var flags [4]byte
	if _, err := io.ReadFull(connection, flags[:]); err != nil {
		return err
	}
	for {
		option, err := readOption(connection)
		if err != nil {
			return err
		}
		switch option {
		case optionGo:
			return d.export(connection)
		case optionAbort:
			return errors.Join(reply(connection, option, replyAcknowledge, nil), io.EOF)
		default:
			if err := reply(connection, option, replyUnsupported, nil); err != nil {
				return err
			}
		}
	}
}

// readOption reads an option and drops its data.
func readOption(connection net.Conn) (uint32, error) {
	var header [16]byte
	if _, err := io.ReadFull(connection, header[:]); err != nil {
		return 0, err
	}
	length := binary.BigEndian.Uint32(header[12:])
	if binary.BigEndian.Uint64(header[:]) != magicOption || length > 4096 {
		return 0, fmt.Errorf("the emulator sent % x where NBD has an option", header)
	}
	_, err := io.CopyN(io.Discard, connection, int64(length))
	return binary.BigEndian.Uint32(header[8:]), err
}

func reply(connection net.Conn, option, kind uint32, data []byte) error {
	message := binary.BigEndian.AppendUint64(nil, magicReply)
	message = binary.BigEndian.AppendUint32(message, option)
	message = binary.BigEndian.AppendUint32(message, kind)
	message = binary.BigEndian.AppendUint32(message, uint32(len(data)))
	_, err := connection.Write(append(message, data...))
	return err
}

func (d *Disk) export(connection net.Conn) error {
	about := binary.BigEndian.AppendUint16(nil, informExport)
	about = binary.BigEndian.AppendUint64(about, uint64(d.size))
	about = binary.BigEndian.AppendUint16(about, transmitHasFlags|transmitFlush)
	return errors.Join(reply(connection, optionGo, replyInformation, about),
		reply(connection, optionGo, replyAcknowledge, nil))
}

// answer does one request. It reports whether the client leaves.
func (d *Disk) answer(connection net.Conn) (leave bool, err error) {
	var header [28]byte
	if _, err := io.ReadFull(connection, header[:]); err != nil {
		return false, err
	}
	if binary.BigEndian.Uint32(header[:]) != magicRequest {
		return false, fmt.Errorf("the emulator sent % x where NBD has a request", header)
	}
	command := binary.BigEndian.Uint16(header[6:])
	offset, length := int64(binary.BigEndian.Uint64(header[16:])), int64(binary.BigEndian.Uint32(header[24:])) //nolint:gosec // checked below
	response := binary.BigEndian.AppendUint32(nil, magicSimple)
	if command == commandLeave {
		return true, nil
	}
	if length > maxRequest {
		return false, fmt.Errorf("the emulator asks for %d bytes at once; %d are allowed", length, maxRequest)
	}
	data := make([]byte, length)
	if command == commandWrite {
		if _, err := io.ReadFull(connection, data); err != nil {
			return false, err
		}
	}
	code := d.perform(command, offset, data)
	response = binary.BigEndian.AppendUint32(response, code)
	response = append(response, header[8:16]...)
	if command == commandRead && code == 0 {
		response = append(response, data...)
	}
	_, err = connection.Write(response)
	return false, err
}

// perform returns the protocol's number of an error, 0 for none.
func (d *Disk) perform(command uint16, offset int64, data []byte) uint32 {
	var err error
	switch {
	case command == commandFlush:
		err = d.flush()
	case offset < 0 || offset > d.size-int64(len(data)) || offset%sectorSize != 0 || len(data)%sectorSize != 0:
		return errorInvalid
	case command == commandRead:
		err = d.read(offset, data)
	case command == commandWrite:
		err = d.write(offset, data)
	default:
		return errorInvalid
	}
	if err != nil {
		return errorIO
	}
	return 0
}
