//! How long a profile takes: parsed and rendered, and only rendered. The Go program measures the same templates, see `cargo xtask gotemplate bench`.

#![allow(clippy::expect_used)] // A benchmark may stop.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use osm_gotemplate::TemplateSet;
use osm_gotemplate::budget::Limits;
use osm_gotemplate_judge::{bench, data};

fn profile(c: &mut Criterion) {
    let (templates, described) = bench::profile().expect("the templates of the benchmark");
    let data = data::value(&described).expect("the data of the benchmark");
    let budget = Limits::new(u64::MAX, usize::MAX);
    let parse = || {
        let parse = |(name, text): &(String, String)| {
            let mut set = TemplateSet::new(name.as_str());
            set.parse(name, text, &budget).expect("a template");
            (name.clone(), set)
        };
        templates.iter().map(parse).collect::<Vec<_>>()
    };
    let render = |parsed: &[(String, TemplateSet)]| -> usize {
        let render = |(name, set): &(String, TemplateSet)| {
            set.execute(name, &data, &budget)
                .expect("what a template renders")
                .len()
        };
        parsed.iter().map(render).sum()
    };
    let parsed = parse();
    println!("bytes: {}", render(&parsed));
    c.bench_function("parse_and_render", |b| b.iter(|| black_box(render(&parse()))));
    c.bench_function("render", |b| b.iter(|| black_box(render(&parsed))));
}

criterion_group!(benches, profile);
criterion_main!(benches);
