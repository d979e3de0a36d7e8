package store

import (
	"errors"
	"testing"
	"time"
)

func TestOffered_survivesARepair(t *testing.T) {
	root := t.TempDir()
	s := open(t, root)
	if err := s.Update(func(tx *Tx) error { return tx.SetOffered("storageclasses/x") }); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Repair(root, time.Now()); err != nil {
		t.Fatal(err)
	}
	s = open(t, root)
	defer func() { _ = s.Close() }()
	if err := s.View(func(tx *Tx) error {
		if !tx.WasOffered("storageclasses/x") || tx.WasOffered("storageclasses/y") {
			t.Error("what was offered is forgotten")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

func TestOffered_isUndoneWithItsChange(t *testing.T) {
	s := open(t, t.TempDir())
	defer func() { _ = s.Close() }()
	wrong := errors.New("wrong")
	if err := s.Update(func(tx *Tx) error { return errors.Join(tx.SetOffered("x"), wrong) }); !errors.Is(err, wrong) {
		t.Fatal(err)
	}
	if err := s.View(func(tx *Tx) error {
		if tx.WasOffered("x") {
			t.Error("a change that failed is recorded")
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}
