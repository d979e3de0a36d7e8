package main

import (
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/holdfast-csi/holdfast/simulation/ec2emu"
	"github.com/holdfast-csi/holdfast/simulation/ec2emu/world"
)

// TestReference_namesEveryFlagAndKnob compares docs/reference/ec2emu.md with the flags and knobs.
func TestReference_namesEveryFlagAndKnob(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/ec2emu.md")
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	flags := pflag.NewFlagSet("ec2emu", pflag.ContinueOnError)
	s := &settings{}
	s.addresses(flags)
	s.describe(flags, &raw{})
	flags.VisitAll(func(f *pflag.Flag) {
		if !strings.Contains(page, "`--"+f.Name) {
			t.Errorf("the page does not name --%s", f.Name)
		}
	})
	for _, name := range append(jsonNames(reflect.TypeFor[ec2emu.AllKnobs]()), jsonNames(reflect.TypeFor[ec2emu.Fault]())...) {
		if !strings.Contains(page, name) {
			t.Errorf("the page does not name the knob %s", name)
		}
	}
	for _, action := range world.Actions() {
		if !strings.Contains(page, action) {
			t.Errorf("the page does not name the action %s", action)
		}
	}
}

func jsonNames(structure reflect.Type) []string {
	var names []string
	for i := range structure.NumField() {
		field := structure.Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		if name == "" {
			continue
		}
		names = append(names, name)
		if field.Type.Kind() == reflect.Struct && field.Type != reflect.TypeFor[world.Takes]() {
			names = append(names, jsonNames(field.Type)...)
		}
	}
	return names
}
