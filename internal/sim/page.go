package sim

import (
	"cmp"
	"errors"
	"fmt"
	"html/template"
	"io"
	"os"
	"slices"
	"strings"
	"time"
)

// This file makes a page of a run that broke something, for a reader who was not there: what is broken, who led and who was cut off, what
// clients had under way around it, and all that members logged. It needs no other file and runs no script.

// What the page shows around the first violation.
const (
	pageBefore = 4 * time.Second
	pageAfter  = time.Second
	pageBroken = 5 // violations that are told at first
)

// page is what the template shows.
type page struct {
	Seed           uint64
	Members        int
	Shape          string
	Stats          Stats
	Broken         []pageLine
	More           []pageLine // further violations
	Whole, Near    chart
	Faults         []pageLine
	Deeds          []pageDeed
	Timeline, Rest []pageLine
}

// pageLine is a line with its time. Class tells how it is to look.
type pageLine struct {
	At         string
	Who, What  string
	Class      string
	Consequent bool // it is near the first violation
}

// pageDeed is an operation of somebody.
type pageDeed struct {
	pageLine
	Took string
}

// chart is lanes over time.
type chart struct {
	Width, Height int
	Left          int // where time begins
	Lanes         []lane
	Ticks         []tick
	Mark          float64 // of the first violation
}

type lane struct {
	Y, Height int
	Name      string
	Class     string
	Spans     []span
}

// Middle is where the name of a lane stands.
func (l lane) Middle() int { return l.Y + l.Height/2 + 4 }

type span struct {
	X, Width  float64
	Y, Height int
	Class     string
	Title     string
}

type tick struct {
	X     float64
	Label string
}

// WritePage writes the page of a run that broke something into a file.
func (r *Result) WritePage(path string) (err error) {
	if len(r.Violations) == 0 {
		return errors.New("sim: nothing is broken, there is nothing to show")
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return r.writePage(f)
}

func (r *Result) writePage(w io.Writer) error {
	t, err := template.New("page").Parse(pageTemplate)
	if err != nil {
		return err
	}
	return t.Execute(w, r.page())
}

// page collects what is shown.
func (r *Result) page() *page {
	c := r.cluster
	first := r.Violations[0].At
	p := &page{Seed: c.seed, Members: len(c.members), Stats: r.Stats}
	p.Shape = fmt.Sprintf("flush up to %v, log released every %d entries, leases of %d to %d s", c.shape.slowDisk, c.shape.snapshotCount, c.shape.leaseTTL[0], c.shape.leaseTTL[1])
	if c.shape.snapshotCount >= 1<<40 {
		p.Shape = fmt.Sprintf("flush up to %v, log never released, leases of %d to %d s", c.shape.slowDisk, c.shape.leaseTTL[0], c.shape.leaseTTL[1])
	}
	for _, v := range r.Violations {
		p.Broken = append(p.Broken, pageLine{At: stamp(v.At), What: strings.ReplaceAll(v.What, "\x00", "␀")})
	}
	n := min(len(p.Broken), pageBroken)
	p.Broken, p.More = p.Broken[:n], p.Broken[n:]
	near := scale{max(0, first-pageBefore), min(first+pageAfter, r.Stats.Virtual), 0}
	deeds := c.deeds(r.locks, near, r.Violations)
	p.Whole = r.chart(scale{0, r.Stats.Virtual, 1060}, nil)
	p.Near = r.chart(scale{near.from, near.to, 1060}, deeds)
	for _, f := range r.Plan {
		p.Faults = append(p.Faults, pageLine{At: stamp(f.At), Who: string(f.Kind), What: faultDetail(f), Consequent: f.At < near.to && f.At+f.For > near.from})
	}
	for _, d := range deeds {
		p.Deeds = append(p.Deeds, pageDeed{pageLine{At: stamp(d.call), Who: d.who, What: d.text, Class: d.class()}, d.took()})
	}
	p.Timeline, p.Rest = c.timeline.page(near)
	return p
}

// faultDetail is a fault without its time and kind, which stand in columns of their own.
func faultDetail(f Fault) string {
	_, detail, _ := strings.Cut(f.String(), string(f.Kind))
	return fmt.Sprintf("%.3fs %s", f.For.Seconds(), strings.TrimSpace(detail))
}

func stamp(d time.Duration) string { return fmt.Sprintf("%.4fs", d.Seconds()) }

// scale maps a stretch of time to a width.
type scale struct {
	from, to time.Duration
	width    float64
}

const laneNames = 110 // width of the names of lanes

func (s scale) x(at time.Duration) float64 {
	at = min(max(at, s.from), s.to)
	return laneNames + s.width*float64(at-s.from)/float64(max(s.to-s.from, 1))
}

// span is a part of a lane, nil if it is not within the scale.
func (s scale) span(from, to time.Duration, class, title string) []span {
	if to < s.from || from > s.to || to < from {
		return nil
	}
	x := s.x(from)
	return []span{{X: x, Width: max(s.x(to)-x, 1.5), Class: class, Title: title}}
}

// ticks are marks at even times, about ten.
func (s scale) ticks() (out []tick) {
	step := time.Second
	for _, d := range []time.Duration{100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond, time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute} {
		if step = d; (s.to-s.from)/d <= 14 {
			break
		}
	}
	for at := (s.from + step - 1) / step * step; at <= s.to; at += step {
		out = append(out, tick{s.x(at), fmt.Sprintf("%gs", at.Seconds())})
	}
	return out
}

// chart draws the lanes of members, of the network, and of those who have deeds.
func (r *Result) chart(s scale, deeds []deed) chart {
	c := r.cluster
	ch := chart{Width: laneNames + int(s.width) + 20, Left: laneNames, Ticks: s.ticks(), Mark: s.x(r.Violations[0].At)}
	y := 24
	add := func(l lane) {
		l.Y = y
		for i := range l.Spans {
			if l.Spans[i].Height == 0 {
				l.Spans[i].Height = l.Height
			}
			l.Spans[i].Y += y
		}
		ch.Lanes = append(ch.Lanes, l)
		y += l.Height + 5
	}
	states := c.timeline.states(r.Stats.Virtual)
	for i, m := range c.members {
		add(memberLane(s, m.name, i, states[m.name], r.Plan))
	}
	add(weatherLane(s, r.Plan))
	for i := 0; i < len(deeds); {
		n := i
		for n < len(deeds) && deeds[n].who == deeds[i].who {
			n++
		}
		l := lane{Name: deeds[i].who, Height: 14, Class: "deeds"}
		for _, d := range deeds[i:n] {
			l.Spans = append(l.Spans, s.span(d.call, d.back, d.class(), d.text)...)
		}
		add(l)
		i = n
	}
	ch.Height = y + 4
	return ch
}

// memberLane is a member: what it was, with what was done to it as stripes within.
func memberLane(s scale, name string, i int, states []state, plan []Fault) lane {
	l := lane{Name: name, Height: 26, Class: "member"}
	for _, x := range states {
		l.Spans = append(l.Spans, s.span(x.from, x.to, x.what, fmt.Sprintf("%s %s, %s to %s", name, x.what, stamp(x.from), stamp(x.to)))...)
	}
	for _, f := range plan {
		class := ""
		switch f.Kind {
		case Partition, OneWay:
			if f.Group&(1<<i) != 0 {
				class = "cut"
			}
		case Weather, PowerAll, Transfer:
		case Pause:
			if f.Member == i {
				class = "paused"
			}
		case SyncFails, DiskFull, TornWrite, PowerIn:
			if f.Member == i {
				class = "disk"
			}
		default:
			if f.Kind == "stall" {
				class = "paused"
			}
		}
		if class == "" {
			continue
		}
		for _, x := range s.span(f.At, f.At+f.For, class, f.String()) {
			x.Y, x.Height = 17, 9
			l.Spans = append(l.Spans, x)
		}
	}
	return l
}

// weatherLane is when messages were lost, late or doubled.
func weatherLane(s scale, plan []Fault) lane {
	l := lane{Name: "network", Height: 12, Class: "network"}
	for _, f := range plan {
		if f.Kind == Weather {
			l.Spans = append(l.Spans, s.span(f.At, f.At+f.For, "weather", f.String())...)
		}
	}
	return l
}

// state is what a member was for some time.
type state struct {
	from, to time.Duration
	what     string // up, leads; that it is down has no span
}

// states reads from the timeline what members were when.
func (t *timeline) states(end time.Duration) map[string][]state {
	t.mu.Lock()
	defer t.mu.Unlock()
	out, now := map[string][]state{}, map[string]state{}
	turn := func(who string, at time.Duration, what string) {
		x := now[who]
		if x.what == what {
			return
		}
		if x.what != "" {
			x.to = at
			out[who] = append(out[who], x)
		}
		now[who] = state{from: at, what: what}
	}
	for _, m := range t.lines {
		switch {
		case strings.HasPrefix(m.what, "started, life"):
			turn(m.who, m.at, "up")
		case m.what == "killed", m.what == "lost power", m.what == "stopped", strings.HasPrefix(m.what, "ended:"):
			turn(m.who, m.at, "")
		case strings.HasPrefix(m.what, "leader changed") && now[m.who].what != "":
			what := "up"
			if strings.Contains(m.what, "is-self:true") {
				what = "leads"
			}
			turn(m.who, m.at, what)
		}
	}
	for who := range now {
		turn(who, end, "")
	}
	return out
}

// page is the timeline, near the violation and all of it.
func (t *timeline) page(near scale) (lines, all []pageLine) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range t.lines {
		l := pageLine{At: stamp(m.at), Who: m.who, What: m.what, Class: "log"}
		switch {
		case m.who == "BROKEN":
			l.Class = "broken"
		case m.who == "fault":
			l.Class = "fault"
		case strings.HasPrefix(m.what, "leader changed"), strings.HasPrefix(m.what, "started"), strings.HasPrefix(m.what, "ended"),
			m.what == "killed", m.what == "lost power", m.what == "stopped":
			l.Class = "turn"
		}
		all = append(all, l)
		if m.at >= near.from && m.at <= near.to {
			lines = append(lines, l)
		}
	}
	return lines, all
}

// deed is an operation of a client, as the page shows it.
type deed struct {
	who        string
	call, back time.Duration
	text       string
	known      bool
	guilty     bool
}

func (d deed) class() string {
	switch {
	case d.guilty:
		return "guilty"
	case !d.known:
		return "unknown"
	}
	return "deed"
}

func (d deed) took() string {
	if d.back == never {
		return "for ever"
	}
	return fmt.Sprintf("%.1f ms", float64(d.back-d.call)/float64(time.Millisecond))
}

// deeds are the operations that were under way near the violation, by who did them and when. Those that a violation tells of are guilty.
func (c *cluster) deeds(b *lockBook, near scale, broken []Violation) []deed {
	all := append(c.history.deeds(), b.deeds()...)
	all = slices.DeleteFunc(all, func(d deed) bool { return d.back < near.from || d.call > near.to })
	for i, d := range all {
		all[i].guilty = slices.ContainsFunc(broken[:min(len(broken), pageBroken)], func(v Violation) bool { return strings.Contains(v.What, d.text) })
	}
	slices.SortStableFunc(all, func(x, y deed) int { return cmp.Or(cmp.Compare(x.who, y.who), cmp.Compare(x.call, y.call)) })
	return all
}

func (h *history) deeds() (out []deed) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.ops {
		out = append(out, deed{who: fmt.Sprintf("client %d", o.client), call: o.call, back: o.back, text: o.String(), known: o.known})
	}
	return out
}

// deeds are all entries of the book.
func (b *lockBook) deeds() (out []deed) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, k := range b.claims {
		out = append(out, deed{who: k.by, call: k.call, back: k.back, text: k.String(), known: k.known})
	}
	for _, x := range b.releases {
		out = append(out, deed{who: x.by, call: x.call, back: x.back, text: x.String(), known: x.known})
	}
	for _, x := range b.lists {
		out = append(out, deed{who: "lists", call: x.call, back: x.back, text: x.String(), known: true})
	}
	for _, x := range b.speeches {
		out = append(out, deed{who: x.by.by, call: x.call, back: x.back, text: x.String(), known: x.known})
	}
	for _, x := range b.queries {
		out = append(out, deed{who: x.by, call: x.call, back: x.back, text: x.String(), known: true})
	}
	for _, x := range b.observers {
		out = append(out, deed{who: x.by, call: x.call, back: x.back, text: x.String(), known: true})
	}
	return out
}
