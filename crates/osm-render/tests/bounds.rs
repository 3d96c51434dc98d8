//! What a hostile profile takes: memory, and, in an optimised build, time of a processor. This prints both:
//! `cargo test --release -p osm-render --test bounds -- --nocapture`.

#![allow(clippy::unwrap_used, clippy::panic)]

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

/// The most time of a processor. A build that is not optimised takes many times as long, so it is not held to
/// this.
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
        let file = |(i, text)| json!({"path": format!("/f{i}"), "content": {"inline": {"data": text}}});
        let files: Vec<Value> = self.files.iter().enumerate().map(file).collect();
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
    let double = |inner: String, i: usize| {
        let next = i + 1;
        format!("{{{{#with (concat v{i} v{i}) as |v{next}|}}}}{inner}{{{{/with}}}}")
    };
    let doubling = (0..9).rev().fold(inner.replace("VALUE", "v9"), double);
    let first = "x".repeat(800);
    format!("{{{{#with (concat \"{first}\") as |v0|}}}}{doubling}{{{{/with}}}}")
}

fn loops(levels: usize, inner: &str) -> String {
    "{{#each @root.downloads}}".repeat(levels) + inner + &"{{/each}}".repeat(levels)
}

/// Loops in Handlebars: a name, how many of them stand in each other, and what they do. `VALUE` is a value of
/// some 400 KiB, `LONG` a path of 125 KB, and `NAMES` are 11,000 fields.
const IN_LOOPS: &str = r#"
long paths | 9 | {{#if LONG}}{{/if}}
many names | 0 | {{> named NAMES}}
large values in loops | 7 | {{#if (eq (yaml VALUE) "")}}{{/if}}
large values compared in loops | 7 | {{#if (eq VALUE "")}}{{/if}}
large values in conditions | 7 | {{#if VALUE}}{{/if}}
large values in options | 7 | {{#if 1 includeZero=VALUE}}{{/if}}
large values given to templates | 7 | {{> a b=VALUE}}
nested templates that get large values | 0 | {{> a0 b=VALUE}}
quoting what is large | 7 | {{#if (toml (json (yaml (shell VALUE))))}}{{/if}}
all steps in empty loops | 20 | {{! nothing }}
all steps in loops with a name | 20 | {{#with @root.pool as |p|}}{{#if p.name}}{{/if}}{{/with}}
all steps in helpers | 20 | {{#if (semver @root.kubelet.version ">=1.0, <2.0")}}{{/if}}
all steps in URLs | 20 | {{#if (download-url "kubelet" arch="$arch")}}{{/if}}
"#;

fn handlebars() -> Vec<Hostile> {
    let in_loops = IN_LOOPS.trim().lines().map(|row| {
        let [name, levels, inner] = row.split(" | ").collect::<Vec<_>>()[..] else {
            panic!("{row}")
        };
        let names: String = (0..11_000).map(|i| format!(" n{i:05}=1")).collect();
        let long = "this.".repeat(25_000) + "baseURL";
        let inner = inner.replace("LONG", &long).replace("NAMES", &names);
        let mut text = loops(levels.parse().unwrap(), &inner);
        if text.contains("VALUE") {
            text = doubled(&text);
        }
        // Templates `a0` to `a20` include each other with a value.
        let next = |i: usize| (format!("a{i}"), format!("{{{{> a{} c=b b=b}}}}", i + 1));
        let mut hostile = Hostile::handlebars(name, vec![text])
            .including("a", "{{#if b}}{{/if}}".to_owned())
            .including("named", loops(9, "{{#if n10999}}{{/if}}"))
            .including("a20", "{{len b}}".to_owned());
        hostile.templates.extend((0..20).map(next));
        hostile
    });
    let many = |text: &str, files| vec![text.to_owned(); files];
    let commands = |name, text: &str, count| Hostile {
        modules: json!({"runcmd": vec![text; count]}),
        ..Hostile::handlebars(name, Vec::new())
    };
    let negations = "{{#if (not (not (not (not (not (not (not (not pool.name))))))))}}{{/if}}";
    let blocks: String = (0..12)
        .map(|i| format!("{{{{#with (concat VALUE) as |w{i}|}}}}"))
        .collect();
    let joined = |values| doubled(&format!("{{{{len (concat{})}}}}", " VALUE".repeat(values)));
    let in_blocks = doubled(&(blocks + &"{{/with}}".repeat(12)));
    let tags = repeated("{{pool.name}}", 20_000);
    let far = " ".repeat(100_000) + "{{> a}}\n";
    let of = Hostile::handlebars;
    let others = [
        of(
            "a large template, included often",
            many(&"{{> a}}".repeat(4), 600),
        )
        .including("a", "x".repeat(120_000)),
        of(
            "a large template, included and indented",
            many("  {{> a}}\n", 1200),
        )
        .including("a", "x\n".repeat(60_000)),
        of("many lines, included and indented far", vec![far]).including("a", "x\n".repeat(60_000)),
        of("large values joined", vec![joined(31)]),
        of("many large values in a tag", vec![joined(2000)]),
        of("templates that get all data again and again", many("{{> a}}", 1))
            .including("a", "{{> b x=this y=this}}".to_owned())
            .including("b", "{{> a x=this y=this}}".to_owned()),
        of("large values in blocks", vec![in_blocks]),
        of("many tags", many(&tags, MAX_CONTENT_BYTES / 21_000)),
        of("many small files", many("{{pool.name}}", MAX_CONTENT_BYTES / 100)),
        of("deep expressions", many(&repeated(negations, 60_000), 8)),
        commands("many short texts", "{{this}}", MAX_CONTENT_BYTES / 10),
        commands("many texts", "a", MAX_CONTENT_BYTES / 4 - 1000),
        Hostile {
            modules: json!({"k".repeat(MAX_CONTENT_BYTES / 2): vec!["a"; MAX_CONTENT_BYTES / 9]}),
            ..Hostile::handlebars("many texts with a long place", Vec::new())
        },
        commands("many fields", "{{pool.name}}", MAX_CONTENT_BYTES / 17),
    ];
    in_loops.chain(others).collect()
}

/// Templates of one file in Go's language with their names, one a line. Tests of the engine have each
/// function, and large sources.
const OF_GO: &str = r#"
repeat | {{range 100000}}{{$x := repeat 100000 "x"}}{{end}}
a list that grows | {{$x := list}}{{range 100000}}{{$x = append $x "x"}}{{end}}
a map that grows | {{$x := dict}}{{range 200000}}{{$x = set $x (toString .) "x"}}{{end}}
lists in lists | {{$x := list}}{{range 200000}}{{$x = list $x $x}}{{end}}{{toJson $x}}
YAML | {{$x := dict "a" (splitList `` (repeat 100000 `x`))}}{{range 1000}}{{$y := toYaml $x}}{{$z := fromYaml $y}}{{end}}
templates that call themselves | {{define "a"}}{{template "a" .}}{{end}}{{template "a" .}}
a copy of lists | {{$x := list}}{{range 99}}{{$x = list $x $x}}{{end}}{{$y := toYaml $x}}
a copy of maps | {{$x := dict}}{{range 99}}{{$x = dict "a" $x "b" $x}}{{end}}{{$y := toYaml $x}}
parts of a text | {{$x := splitList "," (repeat 300000 ",")}}
empty loops | {{range 1000}}{{range 1000}}{{range 1000}}{{range 1000}}{{range 1000}}{{end}}{{end}}{{end}}{{end}}{{end}}
calls in loops | {{range 1000}}{{range 1000}}{{range 1000}}{{range 1000}}{{$x := trim $.KubeVersion}}{{end}}{{end}}{{end}}{{end}}
a text that doubles | {{$x := "0123456789"}}{{range 60}}{{$x = cat $x $x}}{{end}}
small lists of JSON | {{$x := fromJson (print "[" (repeat 250000 "[0],") "0]")}}
small maps of JSON | {{$x := fromJson (print "[" (repeat 150000 `{"a":0},`) "0]")}}
small lists of YAML | {{$x := fromYaml (print "a:\n" (repeat 40000 "- [0]\n"))}}
small maps of YAML | {{$x := fromYaml (print "a:\n" (repeat 40000 "- {a: 0}\n"))}}
small lists that stay | {{$x := list}}{{range 200000}}{{$x = list $x (list 1)}}{{end}}
small maps that stay | {{$x := list}}{{range 200000}}{{$x = list $x (dict "a" 1)}}{{end}}
versions that stay | {{$x := list}}{{range 200000}}{{$x = list $x (semver "1.2.3")}}{{end}}
errors that stay | {{$x := list}}{{range 200000}}{{$x = list $x (fromYaml "[")}}{{end}}
"#;

fn go() -> Vec<Hostile> {
    let rows = OF_GO.trim().lines().map(|row| row.split_once(" | ").unwrap());
    let rows = rows.map(|(name, text)| (name, vec![text.to_owned()]));
    let calls_twice = |i: usize| {
        let next = format!("{{{{template \"a{}\"}}}}", i + 1);
        format!("{{{{define \"a{i}\"}}}}{next}{next}{{{{end}}}}")
    };
    let grow = (0..40).map(calls_twice).collect::<String>() + "{{define \"a40\"}}x{{end}}{{template \"a0\"}}";
    let actions = repeated("{{.KubeVersion}}", 20_000);
    let much = "{{repeat 300 .HostCABundle}}".to_owned();
    let others = [
        ("templates that grow", vec![grow]),
        ("many actions", vec![actions; MAX_CONTENT_BYTES / 21_000]),
        ("output", vec!["x".repeat(400_000)]),
        ("much output", vec![much; 1000]),
    ];
    let all = rows.chain(others);
    all.map(|(name, files)| Hostile::go(name, files)).collect()
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
        let (name, result): (_, String) = (hostile.name, result.chars().take(90).collect());
        let mib = bytes as f64 / 1_048_576.0;
        let [first, all] = [compiled, took].map(|time| time.as_secs_f64());
        println!("{name:42} {mib:7.1} MiB {first:6.2} s {all:6.2} s  {result}");
        if bytes > MAX_MEMORY || (took > MAX_TIME && !cfg!(debug_assertions)) {
            too_much.push(hostile.name);
        }
    }
    assert!(too_much.is_empty(), "{too_much:?}");
}
