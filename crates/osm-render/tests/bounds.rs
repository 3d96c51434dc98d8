//! What a hostile profile takes: memory, and, in an optimised build, time of a processor. This prints both:
//! `cargo test --release -p osm-render --test bounds -- --nocapture`.

#![allow(clippy::unwrap_used)]

use std::alloc::System;
use std::time::Duration;

use osm_api::profile::{CloudProvider, MAX_CONTENT_BYTES, OperatingSystemProfileSpec};
use osm_render::{compile, resolve};
use peakmem_alloc::{PeakMemAlloc, PeakMemAllocTrait};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

#[global_allocator]
static ALLOCATOR: PeakMemAlloc<System> = PeakMemAlloc::new(System);

/// Most memory that one profile may take while it is compiled and rendered, in bytes.
const MAX_MEMORY: usize = 64 * 1024 * 1024;

/// The most time of a processor. A build that is not optimised takes many times as long, so it is not held to this.
const MAX_TIME: Duration = Duration::from_secs(2);

/// Time of a processor that this thread has taken: other programs don't count.
fn now() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

/// A profile whose templates ask for much.
struct Hostile {
    name: &'static str,
    engine: &'static str,
    /// Names and texts.
    templates: Vec<(String, String)>,
    files: Vec<String>,
    modules: Value,
}

impl Hostile {
    fn handlebars(name: &'static str, files: Vec<String>) -> Self {
        Self {
            name,
            engine: "Handlebars",
            templates: Vec::new(),
            files,
            modules: json!({}),
        }
    }

    fn go(name: &'static str, files: Vec<String>) -> Self {
        Self {
            engine: "GoTemplate",
            ..Self::handlebars(name, files)
        }
    }

    fn including(mut self, template: &str, text: String) -> Self {
        self.templates.push((template.to_owned(), text));
        self
    }

    fn spec(&self) -> OperatingSystemProfileSpec {
        let files: Vec<Value> = self
            .files
            .iter()
            .enumerate()
            .map(|(i, text)| json!({"path": format!("/f{i}"), "content": {"inline": {"data": text}}}))
            .collect();
        let templates: Value = self.templates.iter().cloned().collect();
        serde_json::from_value(json!({
            "osName": "ubuntu", "osVersion": "24.04", "version": "v1.0.0", "templateEngine": self.engine,
            "provisioningUtility": "cloud-init", "supportedCloudProviders": [{"name": "openstack"}],
            "bootstrapConfig": {}, "provisioningConfig": {"files": files, "templates": templates, "modules": self.modules},
        }))
        .unwrap()
    }
}

/// A text of about `bytes` bytes.
fn repeated(piece: &str, bytes: usize) -> String {
    piece.repeat(bytes / piece.len())
}

/// `inner` with a value of some 400 KiB in the place of each `VALUE`.
fn doubled(inner: &str) -> String {
    let doubling = (0..9).rev().fold(inner.replace("VALUE", "v9"), |inner, i| {
        format!(
            "{{{{#with (concat v{i} v{i}) as |v{}|}}}}{inner}{{{{/with}}}}",
            i + 1
        )
    });
    format!(
        "{{{{#with (concat \"{}\") as |v0|}}}}{doubling}{{{{/with}}}}",
        "x".repeat(800)
    )
}

fn loops(levels: usize, inner: &str) -> String {
    "{{#each @root.downloads}}".repeat(levels) + inner + &"{{/each}}".repeat(levels)
}

fn handlebars() -> Vec<Hostile> {
    let many = |text: &str, files| vec![text.to_owned(); files];
    let values = " VALUE".repeat(31);
    vec![
        Hostile::handlebars(
            "a large template, included often",
            many(&"{{> a}}".repeat(4), 600),
        )
        .including("a", "x".repeat(120_000)),
        Hostile::handlebars(
            "a large template, included and indented",
            many("  {{> a}}\n", 1200),
        )
        .including("a", "x\n".repeat(60_000)),
        Hostile::handlebars(
            "large values in loops",
            vec![doubled(&loops(7, "{{#if (eq (yaml VALUE) \"\")}}{{/if}}"))],
        ),
        Hostile::handlebars(
            "large values compared in loops",
            vec![doubled(&loops(7, "{{#if (eq VALUE \"\")}}{{/if}}"))],
        ),
        Hostile::handlebars(
            "large values joined",
            vec![doubled(&format!("{{{{len (concat{values})}}}}"))],
        ),
        Hostile::handlebars(
            "large values in conditions",
            vec![doubled(&loops(7, "{{#if VALUE}}{{/if}}"))],
        ),
        Hostile::handlebars(
            "large values in options",
            vec![doubled(&loops(7, "{{#if 1 includeZero=VALUE}}{{/if}}"))],
        ),
        Hostile::handlebars(
            "large values given to templates",
            vec![doubled(&loops(7, "{{> a b=VALUE}}"))],
        )
        .including("a", "{{#if b}}{{/if}}".to_owned()),
        Hostile::handlebars(
            "nested templates that get large values",
            vec![doubled("{{> a0 b=VALUE}}")],
        )
        .including("a20", "{{len b}}".to_owned())
        .chain(20),
        Hostile::handlebars(
            "large values in blocks",
            vec![doubled(&{
                let open: String = (0..12)
                    .map(|i| format!("{{{{#with (concat VALUE) as |w{i}|}}}}"))
                    .collect();
                open + &"{{/with}}".repeat(12)
            })],
        ),
        Hostile::handlebars("all steps in empty loops", vec![loops(20, "")]),
        Hostile::handlebars(
            "all steps in loops with a name",
            vec![loops(
                20,
                "{{#with @root.pool as |p|}}{{#if p.name}}{{/if}}{{/with}}",
            )],
        ),
        Hostile::handlebars(
            "all steps in helpers",
            vec![loops(
                20,
                "{{#if (semver @root.kubelet.version \">=1.0, <2.0\")}}{{/if}}",
            )],
        ),
        Hostile::handlebars(
            "all steps in late-bound values",
            vec![loops(
                20,
                "{{#if (late \"registry/docker.io/password\" as=\"toml\")}}{{/if}}",
            )],
        ),
        Hostile::handlebars(
            "all steps in URLs",
            vec![loops(
                20,
                "{{#if (download-url \"kubelet\" arch=\"$arch\")}}{{/if}}",
            )],
        ),
        Hostile::handlebars(
            "many tags",
            many(&repeated("{{pool.name}}", 20_000), MAX_CONTENT_BYTES / 21_000),
        ),
        Hostile::handlebars("many small files", many("{{pool.name}}", MAX_CONTENT_BYTES / 100)),
        Hostile {
            modules: json!({"runcmd": vec!["{{this}}"; MAX_CONTENT_BYTES / 10]}),
            ..Hostile::handlebars("many short texts", Vec::new())
        },
        Hostile {
            modules: json!({"runcmd": vec!["a"; MAX_CONTENT_BYTES / 4 - 1000]}),
            ..Hostile::handlebars("many texts", Vec::new())
        },
        Hostile {
            modules: json!({"k".repeat(MAX_CONTENT_BYTES / 2): vec!["a"; MAX_CONTENT_BYTES / 9]}),
            ..Hostile::handlebars("many texts with a long place", Vec::new())
        },
        Hostile {
            modules: json!({"runcmd": vec!["{{pool.name}}"; MAX_CONTENT_BYTES / 17]}),
            ..Hostile::handlebars("many fields", Vec::new())
        },
        Hostile::handlebars(
            "deep expressions",
            many(
                &repeated(
                    "{{#if (not (not (not (not (not (not (not (not pool.name))))))))}}{{/if}}",
                    60_000,
                ),
                8,
            ),
        ),
        Hostile::handlebars(
            "quoting what is large",
            vec![doubled(&loops(
                7,
                "{{#if (toml (json (yaml (shell VALUE))))}}{{/if}}",
            ))],
        ),
    ]
}

impl Hostile {
    /// Templates `a0` to `aN` that include each other with a value.
    fn chain(mut self, last: usize) -> Self {
        for i in 0..last {
            self = self.including(&format!("a{i}"), format!("{{{{> a{} c=b b=b}}}}", i + 1));
        }
        self
    }
}

/// Decodes a document with so many times the same text in it. Apostrophes stand for quotation marks.
fn many(function: &str, times: usize, before: &str, text: &str, after: &str) -> Vec<String> {
    let quoted = |text: &str| json!(text.replace('\'', "\"")).to_string();
    let (before, text, after) = (quoted(before), quoted(text), quoted(after));
    vec![format!(
        "{{{{$x := {function} (print {before} (repeat {times} {text}) {after})}}}}"
    )]
}

/// Calls a function again and again, and keeps what it makes.
fn kept(call: &str) -> Vec<String> {
    vec![format!(
        "{{{{$x := list}}}}{{{{range 200000}}}}{{{{$x = list $x ({call})}}}}{{{{end}}}}"
    )]
}

/// Templates of one file in Go's language with their names, one a line.
const OF_GO: &str = r#"
repeat | {{range 100000}}{{$x := repeat 100000 "x"}}{{end}}
wide numbers | {{range 100000}}{{$x := printf "%100000d" 1}}{{end}}
a list that grows | {{$x := list}}{{range 100000}}{{$x = append $x "x"}}{{end}}
a map that grows | {{$x := dict}}{{range 200000}}{{$x = set $x (toString .) "x"}}{{end}}
lists in lists | {{$x := list}}{{range 200000}}{{$x = list $x $x}}{{end}}{{toJson $x}}
uniq | {{$t := `0`}}{{range 2000}}{{$t = print $t `,` .}}{{end}}{{$x := uniq (splitList `,` $t)}}
without | {{$x := splitList `` (repeat 100000 `x`)}}{{range 100000}}{{$y := without $x 1}}{{end}}
sort | {{$x := splitList `` (repeat 100000 `x`)}}{{range 100000}}{{$y := sortAlpha $x}}{{end}}
a regular expression | {{$t := repeat 50000 "a"}}{{range 100000}}{{$x := regexMatch "(a*)*b" $t}}{{end}}
large regular expressions | {{range $i := 100000}}{{$x := regexMatch (printf "(a{1,900}){%d}" $i) "a"}}{{end}}
replacing | {{$t := repeat 50000 "a"}}{{range 100000}}{{$x := regexReplaceAll "a" $t "bbbbbbbbbb"}}{{end}}
splitting | {{$t := repeat 100000 "a,"}}{{range 100000}}{{$x := splitList "," $t}}{{end}}
hashing | {{$t := repeat 500000 "a"}}{{range 100000}}{{$x := sha256sum $t}}{{end}}
YAML | {{$x := dict "a" (splitList `` (repeat 100000 `x`))}}{{range 1000}}{{$y := toYaml $x}}{{$z := fromYaml $y}}{{end}}
TOML and JSON | {{$x := dict "a" (splitList `` (repeat 50000 `x`))}}{{range 1000}}{{$y := toToml $x}}{{$z := toJson $x}}{{$w := fromJson $z}}{{end}}
versions | {{range 1000}}{{range 1000}}{{$x := semverCompare ">=1.0 <2.0 || >=3.0" "1.2.3"}}{{end}}{{end}}
a constraint with many ranges | {{ $c := repeat 300000 "1 - 2||" }}{{ semverCompare (print $c "1") "3" }}
long constraints | {{ $c := print (repeat 41 "<1 || ") "<1" }}{{ range 100000 }}{{ $x := semverCompare $c "1.0.0" }}{{ end }}
maps that are equal up to their last entry | {{ $a := dict }}{{ range 20000 }}{{ $a = set $a (print .) 1 }}{{ end }}{{ $b := omit $a "99" }}{{ $l := list }}{{ range 1000 }}{{ $l = append $l $b }}{{ end }}{{ range 1000 }}{{ $x := has $a $l }}{{ end }}
many characters to trim | {{ $c := repeat 200000 "aäöü" }}{{ $x := trimAll $c $c }}
templates that call themselves | {{define "a"}}{{template "a" .}}{{end}}{{template "a" .}}
a copy of lists | {{$x := list}}{{range 99}}{{$x = list $x $x}}{{end}}{{$y := toYaml $x}}
a copy of maps | {{$x := dict}}{{range 99}}{{$x = dict "a" $x "b" $x}}{{end}}{{$y := toYaml $x}}
parts of a text | {{$x := splitList "," (repeat 300000 ",")}}
"#;

fn go() -> Vec<Hostile> {
    let rows = OF_GO.trim().lines().map(|row| row.split_once(" | ").unwrap());
    let mut all: Vec<Hostile> = rows
        .map(|(name, text)| Hostile::go(name, vec![text.to_owned()]))
        .collect();
    let one = |text: &str| vec![text.to_owned()];
    all.extend([
        Hostile::go(
            "Go: empty loops",
            one(&("{{range 1000}}".repeat(5) + &"{{end}}".repeat(5))),
        ),
        Hostile::go(
            "Go: calls in loops",
            one(&("{{range 1000}}".repeat(4) + "{{$x := trim $.KubeVersion}}" + &"{{end}}".repeat(4))),
        ),
        Hostile::go(
            "Go: a text that doubles",
            one(&("{{$x := \"0123456789\"}}".to_owned() + &"{{$x = cat $x $x}}".repeat(60))),
        ),
        Hostile::go(
            "Go: templates that grow",
            one(&{
                let defined: String = (0..40).map(|i| format!("{{{{define \"a{i}\"}}}}{{{{template \"a{}\"}}}}{{{{template \"a{}\"}}}}{{{{end}}}}", i + 1, i + 1)).collect();
                defined + "{{define \"a40\"}}x{{end}}{{template \"a0\"}}"
            }),
        ),
        Hostile::go(
            "Go: many actions",
            vec![repeated("{{.KubeVersion}}", 20_000); MAX_CONTENT_BYTES / 21_000],
        ),
        Hostile::go("Go: short actions", vec![repeated("{{1}}", 60_000); 8]),
        Hostile::go(
            "Go: long pipelines",
            one(&format!("{{{{1{}}}}}", repeated("|int", 400_000))),
        ),
        Hostile::go(
            "Go: many values",
            one(&format!("{{{{list{}}}}}", repeated(" 1", 500_000))),
        ),
        Hostile::go(
            "Go: small lists of JSON",
            many("fromJson", 250_000, "[", "[0],", "0]"),
        ),
        Hostile::go(
            "Go: small maps of JSON",
            many("fromJson", 150_000, "[", "{'a':0},", "0]"),
        ),
        Hostile::go(
            "Go: small lists of YAML",
            many("fromYaml", 40_000, "a:\n", "- [0]\n", ""),
        ),
        Hostile::go(
            "Go: small maps of YAML",
            many("fromYaml", 40_000, "a:\n", "- {a: 0}\n", ""),
        ),
        Hostile::go("Go: small lists that stay", kept("list 1")),
        Hostile::go("Go: small maps that stay", kept("dict \"a\" 1")),
        Hostile::go("Go: versions that stay", kept("semver \"1.2.3\"")),
        Hostile::go("Go: errors that stay", kept("fromYaml \"[\"")),
        Hostile::go("Go: output", one(&"x".repeat(400_000))),
        Hostile::go(
            "Go: much output",
            vec!["{{repeat 300 .HostCABundle}}".to_owned(); 1000],
        ),
    ]);
    all
}

#[test]
fn no_profile_takes_much_memory_or_time() {
    let mut too_much = Vec::new();
    for hostile in handlebars().into_iter().chain(go()) {
        let spec = hostile.spec();
        let (mut pool, mut settings) = osm_render::full_sample(&spec, CloudProvider::Openstack).unwrap();
        pool.name = "p".repeat(60);
        settings.host_ca_bundle = Some("x".repeat(3000));
        ALLOCATOR.reset_peak_memory();
        let (before, start) = (ALLOCATOR.get_peak_memory(), now());
        let resolved = resolve(&spec);
        let profile = resolved.as_ref().map(compile);
        let compiled = now() - start;
        let result = match &profile {
            Err(error) => error.to_string(),
            Ok(Err(error)) => error.to_string(),
            Ok(Ok(profile)) => {
                let rendered = profile.render(&pool, &settings, &osm_render::stand_in_cluster());
                rendered.map_or_else(|error| error.to_string(), |_| "rendered".to_owned())
            }
        };
        let took = now() - start;
        let bytes = ALLOCATOR.get_peak_memory().saturating_sub(before);
        println!("{}", line(hostile.name, bytes, compiled, took, &result));
        if bytes > MAX_MEMORY || (took > MAX_TIME && !cfg!(debug_assertions)) {
            too_much.push(hostile.name);
        }
    }
    assert!(too_much.is_empty(), "{too_much:?}");
}

fn line(name: &str, bytes: usize, compiled: Duration, took: Duration, result: &str) -> String {
    let result: String = result.chars().take(90).collect();
    format!(
        "{name:42} {:7.1} MiB {:6.2} s {:6.2} s  {result}",
        bytes as f64 / 1024.0 / 1024.0,
        compiled.as_secs_f64(),
        took.as_secs_f64()
    )
}
