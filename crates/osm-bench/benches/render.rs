//! How long one pool takes: `warm` with a compiled profile and one of eight pools in turn that it has rendered before, as a
//! controller does all day; `new` with a compiled profile and a pool that it has not seen, whose documents are written to be
//! measured; `cold` from the profile as it is written.

#![allow(clippy::expect_used, missing_docs)]

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use osm_api::Pool;
use osm_bench::{Case, cases};
use osm_render::{Profile, Rendered, compile, resolve};

fn compiled(case: &Case) -> Profile {
    compile(&resolve(&case.profile).expect("a default profile resolves")).expect("a default profile compiles")
}

fn render(profile: &Profile, pool: &Pool, case: &Case) -> Rendered {
    profile.render(pool, &case.settings, &case.cluster).expect("a default profile renders")
}

/// Pools of one kind, with names, keys and limits of their own.
fn neighbours(pool: &Pool) -> Vec<Pool> {
    let one = |number: i32| {
        let mut one = pool.clone();
        one.name = format!("pool-{number}");
        one.ssh_public_keys = vec![format!("ssh-ed25519 {number}")];
        one.kubelet.max_pods = Some(100 + number);
        one
    };
    (0..8).map(one).collect()
}

fn benches(criterion: &mut Criterion) {
    for case in cases() {
        let profile = compiled(&case);
        let mut in_turn = neighbours(&case.pool).into_iter().cycle();
        criterion.bench_function(&format!("warm/{}", case.name), |b| {
            b.iter_batched_ref(
                || in_turn.next().expect("it never ends"),
                |pool| render(&profile, pool, &case),
                BatchSize::SmallInput,
            );
        });
        let mut pool = case.pool.clone();
        let mut pools = 0_u64;
        criterion.bench_function(&format!("new/{}", case.name), |b| {
            b.iter(|| {
                pools += 1;
                pool.ssh_public_keys = vec![format!("ssh-ed25519 {pools:016}")];
                render(&profile, &pool, &case)
            });
        });
        criterion.bench_function(&format!("cold/{}", case.name), |b| {
            b.iter(|| render(&compiled(&case), &case.pool, &case));
        });
    }
}

criterion_group!(rendering, benches);
criterion_main!(rendering);
