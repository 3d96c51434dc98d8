//! The engine by itself: what templates can do, and that none of them does harm.

use std::sync::LazyLock;
use std::sync::atomic::AtomicBool;

use ::handlebars::{Handlebars, no_escape};
use osm_api::config::{LateBound, LateBoundKind};
use osm_api::pool::Pool;
use osm_api::settings::Downloads;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::budget::{Exhausted, MAX_COPIED, MAX_READ, MAX_STEPS, MAX_WRITTEN};
use crate::downloads::Catalogue;
use crate::engine::Source;
use crate::rendered_text::Placements;

fn data() -> Value {
    json!({
        "text": "a\n\nb\n", "quote": "it's \"x\"", "null": null, "yes": true, "number": 0, "version": "1.35.0-rc.1",
        "list": ["x", "y"], "map": {"a": {"n": 1}, "b": {"n": null}}, "many": vec![0; 200],
        "wide": "w".repeat(100_000), "nul": "a\0b",
    })
}

fn known() -> BTreeMap<String, LateBound> {
    let known = ["api/token", "registry/r:5000/password"].map(|id| LateBound {
        id: id.to_owned(),
        kind: LateBoundKind::APIToken,
        source: None,
    });
    known.map(|late| (late.id.clone(), late)).into()
}

fn say(failure: Failure) -> String {
    let (template, place) = (
        failure.template.unwrap_or_default(),
        failure.line.zip(failure.column),
    );
    format!("{template} {place:?} {}", failure.problem)
}

/// Compiles `partials` and a template, and renders it.
fn render_with(partials: &[(&str, &str)], source: &str) -> Result<String, String> {
    let never = AtomicBool::new(false);
    render_within(&Budget::new(&never), partials, source)
}

fn render_within(budget: &Budget<'_>, partials: &[(&str, &str)], source: &str) -> Result<String, String> {
    let sources = Sources {
        partials: partials.to_vec(),
        texts: vec![Source {
            text: source,
            in_file: true,
        }],
    };
    let compiled = HandlebarsEngine.compile(&sources, budget).map_err(say)?;
    let (data, known) = (data(), known());
    let (downloads, kubelet) = (Downloads::default(), semver::Version::new(1, 35, 0));
    static POOL: LazyLock<Pool> = LazyLock::new(|| {
        let (_, profile) = crate::defaults().swap_remove(0);
        crate::sample_pools(&profile).swap_remove(0).1
    });
    let inputs = Inputs {
        data: &data,
        pool: &POOL,
        settings: &osm_api::Settings::default(),
        cluster: &crate::stand_in_cluster(),
        late_bound_values: &Placements::new(&known),
        downloads: &Catalogue::new(&downloads, &kubelet),
    };
    let texts = compiled.render(&inputs, budget).map_err(say)?;
    Ok(texts.into_iter().map(|text| text.content).collect())
}

fn render(source: &str) -> Result<String, String> {
    render_with(&[], source)
}

fn refused(source: &str, why: &str) {
    let error = render(source).expect_err(source);
    assert!(error.contains(why), "{source}: {error}");
}

/// Templates, and what they render to. `.` ends what would end with a blank.
const RENDERED: &str = r#"
{{quote}} => it's "x"
<{{null}}> => <>
{{#if (and yes list)}}1{{else if null}}2{{else}}3{{/if}} => 1
{{#if number}}1{{else}}0{{/if}}{{#if number includeZero=true}}1{{/if}} => 01
{{#unless (or null number)}}none{{/unless}} => none
{{#if (semver version ">=1.35")}}new{{/if}} => new
{{#if (semver version ">=1.34, <1.35")}}old{{/if}}. => .
{{json map}} => {"a":{"n":1},"b":{"n":null}}
{{yaml list}} {{yaml "yes"}} {{yaml null}} => ["x","y"] "yes" null
{{shell quote}} => 'it'\''s "x"'
{{b64 "abc"}} => YWJj
{{join list ","}} => x,y
{{trim " a "}} => a
{{concat "a" number yes}} => a0true
{{#each list}}{{@index}}{{this}}{{#if @last}}.{{/if}}{{else}}none{{/each}} => 0x1y.
{{#each map as |v k|}}{{k}}{{v.n}}{{@key}} {{/each}}. => a1a bb .
{{#each map}}{{n}}{{@root.number}}{{../number}} {{/each}}. => 100 00 .
{{#each null}}x{{else}}none{{/each}}{{#each null}}x{{/each}} => none
{{#with map.a}}{{n}}{{/with}}{{#with null}}x{{else}}none{{/with}} => 1none
{{len list}}{{lookup list 1}} => 2y
fetch "{{download-url "kubelet" arch="$arch"}}" => fetch "https://dl.k8s.io/v1.35.0/bin/linux/$arch/kubelet"
{{checksum-url (concat "ru" "nc") arch="arm64"}} => https://github.com/opencontainers/runc/releases/download/v1.3.6/runc.sha256sum
\{{literal}} ${x} $((1)) => {{literal}} ${x} $((1))
Bearer {{late "api/token" as="raw"}} => Bearer %%osm-late{api/token,raw}%%
p = {{late (concat "registry/" "r:5000" "/password") as="toml"}} => p = %%osm-late{registry/r:5000/password,toml}%%
{{concat "%%osm-" "late{api/token,raw}%%"}} => %%osm-late{api/token,raw}%%
{{lit "{{"}}.ID{{lit "}}"}} {{{lit '{{{'}}} => {{.ID}} {{{
C:\{{number}} => C:{{number}}
C:\\{{number}} => C:\0
"#;

#[test]
fn helpers_give_what_the_documentation_says() {
    for row in RENDERED.trim().lines() {
        let (source, expected) = row.split_once(" => ").unwrap();
        assert_eq!(render(source).as_deref(), Ok(expected), "{source}");
    }
    assert_eq!(render("{{indent 2 text}}").as_deref(), Ok("  a\n\n  b\n"));
    let lines = "a\n{{#if yes}}\nb\n{{/if}}\nc\n";
    assert_eq!(render(lines).as_deref(), Ok("a\nb\nc\n"));
    let document = render("quote = {{toml quote}}\nlist = {{toml list}}\nyes = {{toml yes}}").unwrap();
    let document: Value = toml::from_str(&document).unwrap();
    let expected = json!({"quote": "it's \"x\"", "list": ["x", "y"], "yes": true});
    assert_eq!(document, expected);
}

#[test]
fn the_documentation_lists_every_helper() {
    let page = include_str!("../../../../docs/templates.md");
    let names = lint::BLOCK_HELPERS.iter().chain(&lint::VALUE_HELPERS);
    for name in names.chain(&lint::SESSION_HELPERS) {
        let ways = ["`NAME ", "`NAME`", "{{#NAME ", "{{NAME "].map(|way| way.replace("NAME", name));
        assert!(ways.iter().any(|way| page.contains(way)), "{name}");
    }
}

/// Templates, with `⏎` for the end of a line, and what is said of them.
const REFUSED: &str = r#"
one⏎two {{missing}} => (2, 5)) there is no field "missing"
{{#if map.typo}}x{{/if}} => no field "map.typo"
{{shell typo}} => no field "typo"
{{unknown text}} => there is no helper "unknown"
{{#if (unknown text)}}{{/if}} => there is no helper "unknown"
{{#semver version ">1"}}{{/semver}} => is not a block
{{if yes}} => must open a block
⏎ {{#if yes}}⏎ => Some((2, 2)) this block is never closed
{{a-}} {{b c.}} => Some((1, 14)) syntax error
{{#if yes}}{{/each}} => each
{{toml null}} => TOML has no form
{{shell nul}} => shell: the text has a NUL character
{{semver quote ">1"}} => isn't a version
⏎{{> absent}} => Some((2, 1)) there is no template "absent"
{{> (lookup map "a")}} => a partial is included by its plain name
{{#> p}}{{/p}} => are not supported: use a named template
{{#*inline "a"}}{{/inline}} => are not supported: use a named template
{{* a}} => are not supported: use a named template
{{log text}} => no helper "log"
⏎{{download-url "kubectl" arch="$arch"}} => (2, 1)) download-url: there is no such download
{{download-url "runc" arch=typo}} => no field "typo"
{{download-url arch="$arch"}} => download-url: an argument
{{download-url 1 arch="$arch"}} => no such download
{{> a list map}} => at most one value without a name
{{lookup list 2}} => lookup: there is no such key or item
{{lookup map 1}} => lookup: there is no such key or item
{{list}} => a list or a map can't be printed
{{map}} => a list or a map can't be printed
{{{list}}} => a list or a map can't be printed
{{lookup map "a"}} => a list or a map can't be printed
{{late "api/tokn" as="raw"}} => api/token, registry/r:5000/password
{{late "api/token"}} => write as=
{{late "api/token" as="rot13"}} => write as=
{{concat "%%osm-" "late{rhel/password,raw}%%"}} => can't be used in this stage
{{concat "%%osm-" "late{api/token,raw"}} => is cut
"#;

#[test]
fn mistakes_are_found_and_located() {
    for row in REFUSED.trim().lines() {
        let (source, why) = row.split_once(" => ").unwrap();
        refused(&source.replace('⏎', "\n"), why);
    }
    for condition in [
        "if missing",
        "unless missing",
        "with missing",
        "each missing",
        "if (and yes missing)",
        "if (or null missing)",
        "if (not missing)",
        "if (eq missing \"x\")",
        "if (semver missing \">1\")",
    ] {
        let block = condition.split(' ').next().unwrap_or_default();
        let source = format!("{{{{#{condition}}}}}a{{{{else}}}}b{{{{/{block}}}}}");
        refused(&source, "missing");
    }
    let inner = render_with(&[("p", "\n{{missing}}")], "{{> p}}").unwrap_err();
    assert!(inner.starts_with("p Some((2, 1))"), "{inner}");
}

#[test]
fn no_error_repeats_data() {
    for helper in [
        "semver quote \">1\"",
        "semver \"1.2.3\" quote",
        "indent quote text",
        "join quote \"\"",
        "toml map",
        "late quote",
        "download-url quote arch=\"$arch\"",
        "download-url \"runc\" arch=quote",
    ] {
        let error = render(&format!("{{{{{helper}}}}}")).unwrap_err();
        assert!(!error.contains("it's"), "{error}");
    }
}

#[test]
fn nothing_looks_at_a_late_value() {
    for destroyed in [
        "{{b64 (late \"api/token\" as=\"raw\")}}",
        "{{len (late \"api/token\" as=\"raw\")}}",
        "{{#if (late \"api/token\" as=\"raw\")}}x{{/if}}",
        "{{late \"api/token\" as=\"raw\"}}{{b64 (late \"api/token\" as=\"raw\")}}",
        "{{> p a=(late \"api/token\" as=\"raw\")}}",
    ] {
        let error = render_with(&[("p", "{{b64 a}}")], destroyed).unwrap_err();
        assert!(error.contains("write {{late …}} alone"), "{error}");
    }
}

#[test]
fn what_is_included_is_rendered_in_its_place() {
    let outer = "{{#each map}}\n{{> inner}}\n{{/each}}\nend of {{quote}}\n";
    let inner = "{{@key}}={{n}} {{#each @root.list}}{{> deepest}}{{/each}}\n";
    let partials = [
        ("outer", outer),
        ("inner", inner),
        ("deepest", "{{this}}{{@index}}{{@root.number}};"),
        ("named", "{{a}}{{b.n}}{{number}}"),
        ("lines", "one\n\n{{text}}{{> two}}"),
        ("two", "two\n  {{> three}}\n"),
        ("three", "three\n"),
    ];
    let of_outer = "a=1 x00;y10;\nb= x00;y10;\nend of it's \"x\"\nthree\n";
    let of_each = "{{#each map as |v k|}}{{> named a=k b=v number=@index}}{{/each}}";
    for (source, expected) in [
        ("{{#if yes}}\n{{> outer}}\n{{/if}}\n{{> three}}", of_outer),
        ("{{> named a=\"x\" b=map.a}}", "x10"),
        ("{{#with map}}{{> named a=b.n b=a number=1}}{{/with}}", "11"),
        (of_each, "a10b1"),
        ("{{#with map}}{{> named map.a a=1 b=2 number=3}}{{/with}}", ""),
        ("{{> deepest map.a}}", ""),
        ("{{#each list}}{{> deepest}}{{/each}}", "x00;y10;"),
        ("  {{> lines}}\nend", "  one\n\n  a\n\n  b\n  two\n    three\nend"),
        ("x {{> three}}", "x three\n"),
    ] {
        let rendered = render_with(&partials, source);
        if expected.is_empty() {
            rendered.unwrap_err();
        } else {
            assert_eq!(rendered.as_deref(), Ok(expected), "{source}");
        }
    }
    let failing = [("a", "{{#if yes}}{{> b}}{{/if}}"), ("b", "\n {{typo}}")];
    let error = render_with(&failing, "{{> a}}").unwrap_err();
    assert!(error.starts_with("b Some((2, 2))"), "{error}");
}

#[test]
fn comparisons_are_those_of_handlebars() {
    let mut plain = Handlebars::new();
    plain.register_escape_fn(no_escape);
    let of_data = ["null", "yes", "number", "text", "list", "map"];
    let literals = [
        "1", "1.5", "-2", "\"1\"", "\"1.5\"", "\"a\"", "\"\"", "true", "false",
    ];
    let values = [&of_data[..], &literals, &["18446744073709551615"]].concat();
    for helper in ["eq", "ne", "gt", "gte", "lt", "lte"] {
        for a in &values {
            for b in &values {
                let source = format!("{{{{{helper} {a} {b}}}}}");
                let expected = plain.render_template(&source, &data()).unwrap();
                assert_eq!(render(&source), Ok(expected), "{source}");
            }
        }
    }
    for value in values {
        for source in [format!("{{{{not {value}}}}}"), format!("{{{{len {value}}}}}")] {
            let expected = plain.render_template(&source, &data()).unwrap();
            assert_eq!(render(&source), Ok(expected), "{source}");
        }
    }
    let looked_up = render("{{lookup list 1}}{{lookup (lookup map \"a\") \"n\"}}");
    assert_eq!(looked_up.unwrap(), "y1");
}

#[test]
fn including_in_a_circle_is_refused() {
    let circle = [
        ("a", "{{#if yes}}{{> b}}{{/if}}"),
        ("b", "{{#if null}}{{else}}{{> a}}{{/if}}"),
    ];
    for partials in [&[("a", "{{> a}}")][..], &circle] {
        let error = render_with(partials, "{{> a}}").unwrap_err();
        assert!(error.contains("nested more than 48 deep"), "{error}");
    }
    let twice = render_with(&[("a", "1{{> b}}"), ("b", "2")], "{{> a}}{{> b}}");
    assert_eq!(twice.unwrap(), "122");
}

#[test]
fn the_deepest_nesting_that_passes_renders_on_a_small_stack() {
    let nest = |depth: usize, inner: &str| "{{#if yes}}".repeat(depth) + inner + &"{{/if}}".repeat(depth);
    let [open, close] = ["(not ", ")"].map(|text| text.repeat(scan::MAX_PARENTHESES));
    let source = nest(scan::MAX_BLOCK_DEPTH, "") + &format!("{{{{not {open}yes{close}}}}}");
    let [nested, deep, deeper] =
        ["{{> p}}", "x", "{{> q}}"].map(|inner| nest(scan::MAX_BLOCK_DEPTH - 2, inner));
    std::thread::Builder::new()
        .stack_size(1024 * 1024)
        .spawn(move || {
            render(&source).unwrap();
            render_with(&[("p", &deep)], &nested).unwrap();
            let error = render_with(&[("p", &deeper), ("q", &deep)], &nested).unwrap_err();
            assert!(error.contains("nested more than 48 deep"), "{error}");
        })
        .unwrap()
        .join()
        .unwrap();
}

/// Pieces of templates, and what only looks like them.
const TOKENS: [&[&str]; 2] = [
    &[
        "{{", "}}", "{{/if}}", "{{else}}", "{{^}}", "{{> p}}", "{{>", "{{!--", "--}}", "{{!", "\\", "\\\\",
        "~", "(", ")", "\"", "'", "[", "]", "{", "}", "{{{", "}}}", "{{{{", "}}}}", "|", "as", "=", "@",
        "../", "this", "text", "map.a", "@key", "late", "concat", "indent 2", " ", "\n", "\r\n", "é",
        "\u{85}", "#", "*", "&", "/", "else", "1",
    ],
    &[
        "{{/each}}",
        "{{/with}}",
        "{{#if yes}}",
        "{{else if null}}",
        "{{#each list}}",
        "{{#with map}}",
        "{{#each map as |a b|}}",
        "{{late \"api/token\" as=\"raw\"}}",
        "{{download-url \"runc\" arch=\"$arch\"}}",
        "checksum-url",
        "%%osm-late{",
    ],
];

/// Text that is likely to be nearly a template.
fn soup() -> impl Strategy<Value = String> {
    let token = prop::sample::select(TOKENS.concat());
    prop::collection::vec(token, 0..40).prop_map(|tokens| tokens.concat())
}

/// Nesting of blocks in a parsed template.
fn depth(template: &::handlebars::Template) -> usize {
    use ::handlebars::template::TemplateElement::HelperBlock;
    let of = |element: &_| {
        let HelperBlock(helper) = element else { return 0 };
        let branches = helper.template.iter().chain(&helper.inverse);
        branches.map(depth).max().unwrap_or(0) + 1
    };
    template.elements.iter().map(of).max().unwrap_or(0)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_text_panics_and_the_same_text_gives_the_same(source in soup()) {
        let once = render_with(&[("p", "partial {{yes}}\n")], &source);
        let is_caught = |error: &String| error.contains("can't be parsed") || error.contains("can't be rendered");
        let caught = once.as_ref().err().is_some_and(is_caught);
        prop_assert!(!caught, "a panic: {:?}", once);
        prop_assert_eq!(&once, &render_with(&[("p", "partial {{yes}}\n")], &source));
    }

    #[test]
    fn the_scanner_never_counts_less_than_the_parser(source in soup()) {
        // Repeated, so that what it misses in one piece adds up.
        let source = source.repeat(3);
        let mut registry = Handlebars::new();
        if scan::check(&source).is_ok() && registry.register_template_string("t", &source).is_ok() {
            let levels = depth(registry.get_template("t").unwrap());
            prop_assert!(levels <= scan::MAX_BLOCK_DEPTH, "{} levels", levels);
        }
    }
}

#[test]
fn what_rendering_uses_is_charged() {
    let never = AtomicBool::new(false);
    let within = |spend: &dyn Fn(&Budget<'_>) -> Result<(), Exhausted>, source: &str| {
        let budget = Budget::new(&never);
        spend(&budget).unwrap();
        render_within(&budget, &[("p", "")], source)
    };
    let [readable, copyable, writable] =
        [MAX_READ, MAX_COPIED, MAX_WRITTEN].map(|most| usize::try_from(most).unwrap());
    let text = "a {{concat quote \"12\"}} b";
    // The template itself, its two texts, and the expression with its two arguments.
    assert!(within(&|budget| budget.step(MAX_STEPS - 6), text).is_ok());
    let error = within(&|budget| budget.step(MAX_STEPS - 5), text).unwrap_err();
    assert!(error.contains("too many loops"), "{error}");
    let written = "a it's \"x\"12 b".len();
    assert!(within(&|budget| budget.write(writable - written), text).is_ok());
    let error = within(&|budget| budget.write(writable - written + 1), text).unwrap_err();
    assert!(error.contains("write more than"), "{error}");
    // The source, and what the helper is given.
    let read = text.len() + "it's \"x\"12".len();
    assert!(within(&|budget| budget.read(readable - read), text).is_ok());
    let error = within(&|budget| budget.read(readable - read + 1), text).unwrap_err();
    assert!(error.contains("read more than"), "{error}");
    for copies in [
        text,
        "{{#if (trim quote)}}{{/if}}",
        "{{#if yes includeZero=(not quote)}}{{/if}}",
        "{{#with (trim quote)}}{{/with}}",
        "{{eq quote text}}",
        "{{late \"api/token\" as=\"raw\"}}",
        "{{> p a=(trim quote)}}",
    ] {
        let error = within(&|budget| budget.copy(copyable), copies).unwrap_err();
        assert!(error.contains("copy or make more than"), "{copies}: {error}");
    }
    // What is part of the data is not copied.
    for named in [
        "{{quote}}",
        "{{#each list as |v|}}{{v}}{{/each}}",
        "{{#with map as |v|}}{{v.a.n}}{{/with}}",
        "{{> p map a=quote}}",
    ] {
        assert!(within(&|budget| budget.copy(copyable), named).is_ok());
    }
}

#[test]
fn joined_texts_stop_at_the_largest_value() {
    let concat = |texts: usize| format!("{{{{len (concat{})}}}}", " wide".repeat(texts));
    assert_eq!(render(&concat(5)).unwrap(), "500000");
    refused(&concat(6), "concat: gives more than");
    refused("{{len (join many wide)}}", "join: gives more than");
    let joined = render("{{join list \"\"}}{{len (join many \"--\")}}");
    assert_eq!(joined.unwrap(), "xy598");
}

#[test]
fn rendering_can_be_cancelled() {
    let cancelled = AtomicBool::new(true);
    let error = render_within(&Budget::new(&cancelled), &[], "{{yes}}").unwrap_err();
    assert!(error.contains("cancelled"), "{error}");
}
