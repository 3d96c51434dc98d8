//! Annotations with settings of the kubelet: a line each, `MaxPods: 50`.

use std::collections::BTreeMap;

use osm_api::{Pool, Settings, names};

use crate::{canary, pipeline};

/// They are read or refused, without repeating a value; what is read can be rendered with a built-in profile, or is refused as well.
pub fn run(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    let annotations: BTreeMap<String, String> = text
        .lines()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| {
            (
                format!("{}{name}", names::KUBELET_CONFIG_PREFIX),
                value.to_owned(),
            )
        })
        .collect();
    let canary_in_input = canary::is_in(text);
    let planted = annotations.iter().map(|(name, value)| {
        // Half of a pair is a name, which a message may repeat.
        let planted = match value.rsplit_once(['=', '<']) {
            Some((pairs, _)) => format!("{pairs}={}", canary::WORD),
            None => canary::WORD.to_owned(),
        };
        BTreeMap::from([(name.clone(), planted)])
    });
    let planted: Vec<_> = planted.filter(|_| !canary_in_input).collect();
    for annotations in planted.into_iter().chain([annotations]) {
        match Pool::read(&pipeline::machine_deployment(
            pipeline::provider_spec(),
            annotations,
        )) {
            Ok(pool) => pipeline::with_default_profile(&pool, &Settings::default(), canary_in_input),
            Err(error) if canary_in_input => assert!(!error.reason().as_str().is_empty()),
            Err(error) => canary::check(&error.to_string()),
        }
    }
}

/// All that there are.
pub fn seeds() -> Vec<String> {
    [
        "SystemReserved: cpu=200m,memory=1.5Gi,ephemeral-storage=1G,pid=1000\nKubeReserved: memory=200Mi",
        "EvictionHard: memory.available<100Mi,nodefs.available<10%,imagefs.inodesFree<5%",
        "ContainerLogMaxSize: 100Mi\nContainerLogMaxFiles: 2\nMaxPods: 110",
        "ImageGCHighThresholdPercent: 90\nImageGCLowThresholdPercent: 10",
        "ImageMinimumGCAge: 1m30s\nImageMaximumGCAge: 24h",
        "SystemReserved: cpu=1e3,memory=12E\nEvictionHard: pid.available<0.5",
    ]
    .map(str::to_owned)
    .to_vec()
}
