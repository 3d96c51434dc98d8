//! Which changes of configs go first.

use osm_runtime::queue::Priority;

use crate::model::view::ConfigView;

/// machine-controller waits for a revision that is rendered and not published yet. Everything else is without haste: new content of the
/// same revision, which changes with the settings in all pools at once; and the end of a pool.
pub fn of(config: &ConfigView) -> Priority {
    let published = config.status.published.as_ref();
    let is_awaited = config.to_publish().is_some_and(|rendered| {
        let revision = rendered.revision.as_deref().unwrap_or_default();
        published.is_none_or(|published| revision != published.revision)
    });
    match is_awaited {
        true => Priority::High,
        false => Priority::Low,
    }
}

#[cfg(test)]
mod tests {
    use osm_api::config::{Published, Retired};

    use super::*;
    use crate::plan::fixtures::config;

    #[test]
    fn a_new_revision_goes_first() {
        let of_revision = |revision: &str| {
            let mut config = config();
            config.status.published = Some(Published {
                digest: "another".into(),
                revision: revision.into(),
                bootstrap_secret: String::new(),
                provisioning_secret: String::new(),
                credential_expires: String::new(),
            });
            config
        };
        assert_eq!(of(&config()), Priority::High, "nothing is published");
        assert_eq!(of(&of_revision("0")), Priority::High, "an older one is published");
        assert_eq!(of(&of_revision("1")), Priority::Low, "only the content is new");
        let mut gone = config();
        gone.status.retired = Some(Retired {
            uid: "md-uid".into(),
            generation: 3,
        });
        assert_eq!(of(&gone), Priority::Low, "it is retired");
    }
}
