package sim

// pageTemplate is the page of a run that broke something; its data is a page. Colours follow what the reader's system prefers.
const pageTemplate = `<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>seed {{.Seed}}: broken</title>
<style>
:root {
	--paper: #fbfaf7; --ink: #24292f; --quiet: #6b7280; --line: #e3e0d8; --card: #ffffff;
	--up: #bcd9c4; --leads: #2f8f5b; --cut: #d97706; --paused: #7c5cc4; --disk: #94702f; --weather: #8fb3d9;
	--deed: #7aa2c9; --unknown: #c3c6cc; --guilty: #cf222e; --guiltypaper: #ffebe9; --near: #fff6dc;
}
@media (prefers-color-scheme: dark) {
	:root {
		--paper: #16181c; --ink: #d7dae0; --quiet: #8b929e; --line: #30343b; --card: #1d2025;
		--up: #2f5a41; --leads: #4fbf80; --cut: #e69138; --paused: #9f82e0; --disk: #c09a4a; --weather: #4a6f96;
		--deed: #4f7ba6; --unknown: #565b64; --guilty: #ff6b6b; --guiltypaper: #3d1f22; --near: #332d1c;
	}
}
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 28px 28px 60px; max-width: 1280px; background: var(--paper); color: var(--ink); font: 15px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; }
h1 { margin: 0; font-size: 24px; font-weight: 650; }
h2 { margin: 34px 0 8px; font-size: 17px; font-weight: 650; }
p { margin: 4px 0 12px; max-width: 92ch; color: var(--quiet); }
code, .mono, td.at, td.what, td.who { font: 12.5px/1.5 ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace; }
.broken { margin: 16px 0 0; padding: 14px 18px; border-left: 5px solid var(--guilty); border-radius: 4px; background: var(--guiltypaper); }
.broken div { margin: 5px 0; white-space: pre-wrap; overflow-wrap: anywhere; font: 13px/1.5 ui-monospace, Menlo, "DejaVu Sans Mono", monospace; }
.broken b { color: var(--guilty); margin-right: 8px; }
.card { padding: 12px; border: 1px solid var(--line); border-radius: 8px; background: var(--card); overflow-x: auto; }
.legend { margin: 8px 0 0; font-size: 13px; color: var(--quiet); }
.legend i { display: inline-block; width: 18px; height: 10px; margin: 0 5px 0 14px; border-radius: 2px; }
.legend i:first-child { margin-left: 0; }
svg { display: block; width: 100%; min-width: 900px; height: auto; }
svg text { fill: var(--quiet); font: 11px system-ui, "DejaVu Sans", sans-serif; }
svg text.name { fill: var(--ink); text-anchor: end; }
svg .ground { fill: var(--line); opacity: .45; }
svg .tick { stroke: var(--line); }
svg .mark { stroke: var(--guilty); stroke-width: 1.6; stroke-dasharray: 4 3; }
svg .up { fill: var(--up); } svg .leads { fill: var(--leads); }
svg .cut { fill: var(--cut); } svg .paused { fill: var(--paused); } svg .disk { fill: var(--disk); } svg .weather { fill: var(--weather); }
svg .deed { fill: var(--deed); opacity: .75; } svg .unknown { fill: var(--unknown); opacity: .8; } svg .guilty { fill: var(--guilty); }
.up { background: var(--up); } .leads { background: var(--leads); } .cut { background: var(--cut); } .paused { background: var(--paused); }
.disk { background: var(--disk); } .weather { background: var(--weather); } i.deed { background: var(--deed); } i.unknown { background: var(--unknown); }
i.guilty { background: var(--guilty); } i.down { background: var(--line); opacity: .6; }
table { border-collapse: collapse; width: 100%; }
td { padding: 2px 10px 2px 0; vertical-align: top; border-top: 1px solid var(--line); }
tr:first-child td { border-top: 0; }
td.at { white-space: nowrap; text-align: right; color: var(--quiet); }
td.who { white-space: nowrap; }
td.what { width: 100%; overflow-wrap: anywhere; white-space: pre-wrap; }
tr.guilty td, tr.broken td { background: var(--guiltypaper); color: var(--guilty); font-weight: 600; }
tr.unknown td.what { color: var(--quiet); }
tr.near td { background: var(--near); }
tr.fault td.what, tr.fault td.who { color: var(--cut); } tr.turn td.what { color: var(--leads); }
details { margin: 10px 0; } summary { cursor: pointer; color: var(--quiet); }
</style>
</head>
<body>
<h1>Seed {{.Seed}} broke a promise</h1>
<p>{{.Members}} members; {{.Shape}}. {{.Stats.Faults}} faults, {{.Stats.Starts}} starts, {{.Stats.Ops}} operations on registers, {{.Stats.Claims}} claims on locks and elections, {{.Stats.Revisions}} revisions.
All times are virtual. Run it again: <code>make sim SEED={{.Seed}} N=1</code></p>
<div class="broken">{{range .Broken}}<div><b>{{.At}}</b>{{.What}}</div>{{end}}{{if .More}}<details><summary>and {{len .More}} more</summary>{{range .More}}<div><b>{{.At}}</b>{{.What}}</div>{{end}}</details>{{end}}</div>

<h2>Around it</h2>
<p>Members first, then who had operations under way. The dashed line is the moment of the first violation. Rest the pointer on a bar to read it.</p>
<div class="card">{{template "chart" .Near}}{{template "legend"}}</div>

<h2>The whole run</h2>
<div class="card">{{template "chart" .Whole}}</div>

<h2>Operations under way around it</h2>
<div class="card"><table>{{range .Deeds}}<tr class="{{.Class}}"><td class="at">{{.At}}</td><td class="at">{{.Took}}</td><td class="who">{{.Who}}</td><td class="what">{{.What}}</td></tr>
{{else}}<tr><td>none</td></tr>{{end}}</table></div>

<h2>What happened around it</h2>
<div class="card"><table>{{range .Timeline}}<tr class="{{.Class}}"><td class="at">{{.At}}</td><td class="who">{{.Who}}</td><td class="what">{{.What}}</td></tr>
{{end}}</table></div>

<h2>Faults</h2>
<p>Those with a yellow ground were there around the violation.</p>
<div class="card"><table>{{range .Faults}}<tr{{if .Consequent}} class="near"{{end}}><td class="at">{{.At}}</td><td class="who">{{.Who}}</td><td class="what">{{.What}}</td></tr>
{{else}}<tr><td>none</td></tr>{{end}}</table></div>

<h2>Everything that happened</h2>
<details><summary>{{len .Rest}} lines</summary>
<div class="card"><table>{{range .Rest}}<tr class="{{.Class}}"><td class="at">{{.At}}</td><td class="who">{{.Who}}</td><td class="what">{{.What}}</td></tr>
{{end}}</table></div></details>
</body>
</html>
{{define "chart"}}<svg viewBox="0 0 {{.Width}} {{.Height}}" role="img" aria-label="lanes over time">
{{$c := .}}{{range .Ticks}}<line class="tick" x1="{{.X}}" x2="{{.X}}" y1="18" y2="{{$c.Height}}"/><text x="{{.X}}" y="12" text-anchor="middle">{{.Label}}</text>
{{end}}{{range .Lanes}}<text class="name" x="{{$c.Left}}" dx="-8" y="{{.Middle}}">{{.Name}}</text>
<rect class="ground" x="{{$c.Left}}" y="{{.Y}}" width="1060" height="{{.Height}}" rx="2"/>
{{range .Spans}}<rect class="{{.Class}}" x="{{.X}}" y="{{.Y}}" width="{{.Width}}" height="{{.Height}}" rx="2"><title>{{.Title}}</title></rect>
{{end}}{{end}}<line class="mark" x1="{{.Mark}}" x2="{{.Mark}}" y1="16" y2="{{.Height}}"/>
</svg>{{end}}
{{define "legend"}}<div class="legend"><i class="up"></i>up<i class="leads"></i>leads<i class="down"></i>down<i class="cut"></i>cut off<i class="paused"></i>paused<i class="disk"></i>its disk is to fail<i class="weather"></i>messages lost, late, doubled<i class="deed"></i>answered<i class="unknown"></i>without an answer<i class="guilty"></i>in the violation</div>{{end}}
`
