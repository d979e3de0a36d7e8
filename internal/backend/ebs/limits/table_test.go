package limits

import (
	"strconv"
	"strings"
	"testing"
)

// The rows of the table as DescribeInstanceTypes gave them, one type or one
// group in braces per word. They are written out here in another form than in
// the rules, so that each checks the other.
const (
	dedicatedRows = `
c7a.{medium,large,xlarge,2xlarge,4xlarge,8xlarge,12xlarge} 32
c7a.16xlarge 48
c7a.24xlarge 64
c7a.32xlarge 88
c7a.48xlarge 128
c7a.metal-48xl 79
{c7i-flex,c8i-flex,m7i-flex,m8i-flex,r8i-flex}.{large,xlarge,2xlarge,4xlarge,8xlarge,12xlarge} 32
{c8g,c8gd,m8g,m8gd,r8g,r8gd,x8g,m9g,m9gd,c9g,c9gd,i8g,i8ge}.{medium,large,xlarge,2xlarge,4xlarge,8xlarge,12xlarge} 32
{c7i,m7i,r7i,r7iz,m7a,r7a,i7i,i7ie,c8ine,m8ine,g6,g6e,g6f,g7,g7e,gr6,gr6f}.{large,xlarge,2xlarge,3xlarge,6xlarge,12xlarge} 32
{i7ie,g6,m8g}.{16xlarge,18xlarge} 48
{g6,g6e,m7i,r8g,c8i}.24xlarge 64
{c8i,r8i,m8i,x8i,r7iz}.32xlarge 88
{u7i-6tb,u7i-8tb,u7i-12tb,u7in-16tb,u7in-24tb,u7in-32tb}.{112xlarge,224xlarge} 128
{g6,g7,g7e,f2,i8g,m8gn,r8gb}.48xlarge 128
{c8i,m8idb,r8in}.{64xlarge,96xlarge} 128
{c7i,m7i,r7i,r7iz,c8g,m8gd,r8gn}.{metal-16xl,metal-24xl} 39
{c7i,m7i,r7i,c8g,m8gd,x8g}.{metal-48xl} 79
{r7iz}.metal-32xl 79
{c8i,m8i,r8i,c8id,x8i}.metal-96xl 79
{p4d,p4de}.24xlarge 28
hpc7a.{12,24,48,96}xlarge 27
hpc8a.96xlarge 27
{c8a,m8a,r8a}.metal-24xl 64
{c8i,c8ib,c8id,c8in,m8i,m8ib,m8id,m8idb,m8idn,m8in,r8i,r8ib,r8id,r8idb,r8idn,r8in,x8i}.metal-48xl 64
{m8azn,x8aedz}.{12xlarge,metal-12xl} 64
{p5,p5e,p5en,p6-b200,p6-b300,trn2}.48xlarge 64
{c8gb,c8gn,m8gb,m8gn,r8gb,r8gn}.metal-48xl 78
{c8ib,c8in,m8ib,m8idb,m8idn,m8in,r8ib,r8idb,r8idn,r8in}.metal-96xl 78
{m8azn,x8aedz}.24xlarge 128
{m8azn,x8aedz}.metal-24xl 79
{c1.medium,c1.xlarge,c3.8xlarge,c4.large,d2.xlarge,h1.16xlarge,i2.8xlarge,i3.large,i3.16xlarge,m1.small,m2.4xlarge,m3.medium,m4.16xlarge,r3.large,r4.16xlarge,t1.micro,t2.nano,t2.2xlarge,x1.32xlarge,x1e.32xlarge} 39`

	sharedRows = `
d3.8xlarge 3
d3en.12xlarge 3
g5.48xlarge 9
{mac2,mac2-m1ultra,mac2-m2,mac2-m2pro,mac-m3ultra,mac-m4max}.metal 10
d3en.8xlarge 11
inf1.24xlarge 11
d3.4xlarge 15
d3en.6xlarge 15
mac1.metal 16
p3dn.24xlarge 17
{d3en.4xlarge,dl2q.24xlarge,i3en.24xlarge,i4i.32xlarge} 19
{d3.2xlarge,g4ad.16xlarge,i4i.24xlarge} 21
g4dn.12xlarge 22
g5.{12,24}xlarge 22
c5d.24xlarge 23
{c6id,m6id,m6idn,r6id,r6idn}.{24,32}xlarge 23
{d3en.2xlarge,hpc6id.32xlarge,i3en.12xlarge,inf1.6xlarge,is4gen.8xlarge,vt1.6xlarge} 23
{i4g,i4i,im4gn}.16xlarge 23
{m5ad,m5d,m5dn,r5ad,r5d,r5dn}.{16,24}xlarge 23
{d3.xlarge,g4ad.8xlarge,i4i.12xlarge} 24
c5ad.{4,8,12,16,24}xlarge 25
c5d.{12,18}xlarge 25
{c6gd,c7gd,m6gd,m7gd,r6gd,r7gd,x2gd}.{12,16}xlarge 25
{c6id,m6id,m6idn,r6id,r6idn}.{12,16}xlarge 25
{d3en.xlarge,g5g.16xlarge,is4gen.4xlarge,trn1.2xlarge,vt1.3xlarge,z1d.12xlarge} 25
g4ad.{x,2x,4x}large 25
{g4dn,g5}.{x,2x,4x,8x,16x}large 25
i3en.{2,6}xlarge 25
{i4g,i4i,im4gn}.8xlarge 25
{m5ad,m5d,m5dn,r5ad,r5d,r5dn}.{4,8,12}xlarge 25
{x2idn,x2iedn}.{24,32}xlarge 25
{c5ad,c5d,c6gd,c6id,c7gd,i3en,i4g,i4i,im4gn,is4gen,m5ad,m5d,m5dn,m6gd,m6id,m6idn,m7gd,r5ad,r5d,r5dn,r6gd,r6id,r6idn,r7gd,x2gd,z1d}.large 26
{g5g,inf1,inf2,x2iedn}.xlarge 26
{x2idn,x2iedn}.16xlarge 26
{c5d.9xlarge,g5g.8xlarge,i3en.3xlarge,i4g.4xlarge,inf1.2xlarge,inf2.8xlarge,z1d.6xlarge,r6gd.medium} 26
inf2.{24,48}xlarge 28
{trn1,trn1n}.32xlarge 28
{a1,c5,c5d,c5n,c6a,c6g,c6gd,c6i,c6id,c6in,c7g,c7gd,c7gn,g4dn,g5g,i3en,i4i,m5,m5d,m5dn,m5n,m5zn}.metal 31
{m6a,m6g,m6gd,m6i,m6id,m6idn,m6in,m7g,m7gd,r5,r5b,r5d,r5dn,r5n,r6a,r6g,r6gd,r6i,r6id,r6idn,r6in,r7g,r7gd}.metal 31
{x2gd,x2idn,x2iedn,x2iezn,z1d,mac-m4,mac-m4pro}.metal 31
{m5,c5,r5,t3,t3a,t4g,m6g,c6i,r6a,m7g,c7gn}.{large,xlarge,2xlarge,16xlarge} 27
{i3,m1x}.metal 27`
)

// expand returns the words of a pattern with groups in braces.
func expand(pattern string) []string {
	open := strings.IndexByte(pattern, '{')
	if open < 0 {
		return []string{pattern}
	}
	shut := open + strings.IndexByte(pattern[open:], '}')
	var words []string
	for _, choice := range strings.Split(pattern[open+1:shut], ",") {
		words = append(words, expand(pattern[:open]+choice+pattern[shut+1:])...)
	}
	return words
}

func TestOf_givesEveryRowOfTheTable(t *testing.T) {
	types := 0
	for _, table := range []struct {
		rows   string
		shared bool
	}{{dedicatedRows, false}, {sharedRows, true}} {
		for row := range strings.Lines(strings.TrimSpace(table.rows)) {
			pattern, number, _ := strings.Cut(strings.TrimSpace(row), " ")
			slots, err := strconv.Atoi(number)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range expand(pattern) {
				types++
				if got, _ := Of(name); got != (Limit{Slots: slots, Shared: table.shared}) {
					t.Errorf("%s: %+v; want %d, shared = %t", name, got, slots, table.shared)
				}
			}
		}
	}
	if types < 400 {
		t.Fatalf("%d types", types)
	}
}

// A family that is in no rule is reported as unknown, and gets what most have.
func TestOf_reportsWhatItDoesNotKnow(t *testing.T) {
	for name, known := range map[string]bool{
		"m5.large": true, "t2.micro": true, "m8g.large": true, "i4i.metal": true, "ml.m5.large": true,
		"m42.large": false, "": false, "large": false, "m8g.3000xlarge": false,
	} {
		if _, got := Of(name); got != known {
			t.Errorf("%q: known = %t; want %t", name, got, known)
		}
	}
	if limit, _ := Of("m42.large"); limit != (Limit{Slots: 27, Shared: true}) {
		t.Errorf("an unknown type: %+v", limit)
	}
}

func number(n int64) *int64 { return &n }

// The limits of an instance: never 0, which would be none.
func TestCompute_followsTheRule(t *testing.T) {
	tests := []struct {
		name   string
		config Config
		facts  Facts
		want   int64
	}{
		{"the reference's example", Config{}, Facts{"m5.large", 2, 2}, 24},
		{"the root alone, and interfaces unknown", Config{}, Facts{"m5.large", 0, 0}, 26},
		{"interfaces do not count where slots are dedicated", Config{}, Facts{"m7i.large", 3, 1}, 31},
		{"reserved by configuration", Config{Reserved: number(5)}, Facts{"m5.large", 1, 1}, 22},
		{"none reserved", Config{Reserved: number(0)}, Facts{"m5.large", 1, 3}, 27},
		{"fixed", Config{Volumes: number(7)}, Facts{"m5.large", 9, 9}, 7},
		{"fixed to none", Config{Volumes: number(0)}, Facts{"m5.large", 1, 1}, 1},
		{"more in use than there is", Config{}, Facts{"d3.8xlarge", 4, 4}, 1},
		{"an unknown type", Config{}, Facts{"m42.large", 1, 1}, 26},
		{"Xen", Config{}, Facts{"t2.micro", 2, 1}, 38},
	}
	for _, test := range tests {
		got := Compute(test.config, test.facts)
		if got.Volumes != test.want || got.Derivation == "" {
			t.Errorf("%s: %+v; want %d", test.name, got, test.want)
		}
	}
}

func TestConfig_refusesBothFlags(t *testing.T) {
	for _, c := range []Config{{number(1), number(1)}, {number(-1), nil}, {nil, number(-2)}} {
		if c.Check() == nil {
			t.Errorf("%+v was accepted", c)
		}
	}
	if err := (Config{Reserved: number(0)}).Check(); err != nil {
		t.Error(err)
	}
}
