//! Whether the content of a config, with the values that its documents take from other objects, is what is published.

use osm_api::names;

use crate::model::gathered::Gathered;
use crate::model::memory::MadeFrom;
use crate::model::published_from::published_from;
use crate::model::source::Inputs;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Comparison {
    Same,
    Different,
    /// An object that values come from has changed since, or another version published; the documents have to be compared.
    Unknown,
}

/// `digest`: of the rendered content. Without a bootstrap Secret nothing is the same.
pub fn compare(gathered: &Gathered, digest: &str, inputs: &Inputs) -> Comparison {
    let bootstrap = gathered.existing.bootstrap.as_ref();
    let Some(recorded) = bootstrap.and_then(|secret| secret.meta.annotation(names::PUBLISHED_FROM)) else {
        return Comparison::Different;
    };
    let made_from = gathered.memory.made_from.as_ref();
    match made_from.filter(|made_from| made_from.published_from == recorded) {
        // More than the reference shows: after etcd was restored, a resourceVersion may stand for another value.
        Some(known) if known.digest == digest && known.values == inputs.values => Comparison::Same,
        Some(_) => Comparison::Different,
        None if recorded == published_from(digest, &inputs.references) => Comparison::Same,
        None => Comparison::Unknown,
    }
}

/// What a pool is published from is known, since it is [the same](Comparison::Same) as this content.
pub fn made_from(gathered: &Gathered, digest: &str, inputs: &Inputs) -> Option<MadeFrom> {
    let bootstrap = gathered.existing.bootstrap.as_ref()?;
    Some(MadeFrom {
        published_from: bootstrap.meta.annotation(names::PUBLISHED_FROM)?.to_owned(),
        digest: digest.to_owned(),
        values: inputs.values.clone(),
    })
}

#[cfg(test)]
mod tests {
    use osm_render::LateValues;

    use super::*;
    use crate::plan::fixtures::{edit_bootstrap, published};

    fn inputs(state: &str, value: &str) -> Inputs {
        Inputs {
            values: LateValues::from([("password".to_owned(), value.to_owned())]),
            references: [format!("Secret/n/s={state}")].into(),
        }
    }

    #[test]
    fn a_changed_reference_alone_is_no_new_content() {
        let before = inputs("u/1", "a");
        let recorded = published_from("d", &before.references);
        let mut after_a_restart = published();
        edit_bootstrap(&mut after_a_restart, |secret| {
            secret
                .meta
                .annotations
                .insert(names::PUBLISHED_FROM.into(), recorded.clone());
        });
        after_a_restart.memory.made_from = None;
        let mut running = after_a_restart.clone();
        running.memory.made_from = Some(MadeFrom {
            published_from: recorded,
            digest: "d".into(),
            values: before.values.clone(),
        });
        let mut compared = running.clone();
        compared.memory.made_from.as_mut().unwrap().digest = String::new();
        let (same, different, unknown) = (Comparison::Same, Comparison::Different, Comparison::Unknown);
        for (what, gathered, digest, inputs, expected) in [
            ("nothing has changed", &running, "d", inputs("u/1", "a"), same),
            (
                "the same, after a restart",
                &after_a_restart,
                "d",
                inputs("u/1", "a"),
                same,
            ),
            (
                "rewritten without a change",
                &running,
                "d",
                inputs("u/2", "a"),
                same,
            ),
            (
                "the same, after a restart",
                &after_a_restart,
                "d",
                inputs("u/2", "a"),
                unknown,
            ),
            ("another value", &running, "d", inputs("u/2", "b"), different),
            ("etcd was restored", &running, "d", inputs("u/1", "b"), different),
            ("another content", &running, "e", inputs("u/1", "a"), different),
            (
                "the same, after a restart",
                &after_a_restart,
                "e",
                inputs("u/1", "a"),
                unknown,
            ),
            (
                "found to be another one",
                &compared,
                "d",
                inputs("u/2", "a"),
                different,
            ),
        ] {
            assert_eq!(compare(gathered, digest, &inputs), expected, "{what}");
        }
    }
}
