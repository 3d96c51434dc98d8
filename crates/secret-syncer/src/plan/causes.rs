//! Why a pool is published (again): a chain of checks, each of which knows one reason.

use std::sync::Arc;

use osm_api::names;

use crate::model::existing::ExistingObjects;
use crate::model::gathered::Gathered;
use crate::model::ownership::OwnershipLabels;
use crate::model::seal::{SEALED, is_sealed};
use crate::model::token_binding::{bound_to, bound_to_kubeconfig};
use crate::model::view::{Meta, SecretView};
use crate::plan::cause::Cause;
use crate::plan::kubeconfig_secret;

/// What checks look at.
pub struct Input<'a> {
    pub gathered: &'a Gathered,
    pub is_edge: bool,
    pub needs_kubeconfig_secret: bool,
    /// What is to be published; `None`: what is published already.
    pub wanted: Option<Wanted<'a>>,
    pub ownership: &'a OwnershipLabels,
    /// What the token of kubelets has to rest on; `None`: it does not exist.
    pub joins_by: Option<&'a str>,
}

/// New content, as the bootstrap Secret is to record it.
pub struct Wanted<'a> {
    pub revision: &'a str,
    pub published_from: String,
    pub inputs_mac: &'a str,
}

/// `None`: no reason to publish.
type Check = fn(&Input<'_>) -> Option<Cause>;

/// Without a bootstrap Secret only the first one speaks.
const CHAIN: [Check; 26] = [
    bootstrap_secret_does_not_exist,
    documents_are_of_another_program,
    bootstrap_secret_has_another_revision,
    bootstrap_secret_has_other_inputs,
    bootstrap_secret_is_of_another_content,
    bootstrap_secret_breaks_its_seal,
    bootstrap_secret_is_immutable,
    bootstrap_secret_lost_its_owner,
    bootstrap_secret_is_marked_as_orphan,
    edge_script_does_not_exist,
    edge_script_breaks_its_seal,
    edge_script_has_other_tokens,
    edge_script_is_immutable,
    edge_script_lost_its_owner,
    edge_script_is_marked_as_orphan,
    kubeconfig_secret_breaks_its_seal,
    kubeconfig_secret_has_other_tokens,
    kubeconfig_secret_is_immutable,
    kubeconfig_secret_lost_its_owner,
    kubeconfig_secret_is_marked_as_orphan,
    tokens_are_bound_to_other_objects,
    provisioning_secret_is_altered,
    renewal_is_due,
    role_does_not_open_the_provisioning_secret,
    role_does_not_open_the_kubeconfig_secret,
    role_binding_does_not_bind,
];

/// Every reason to publish, each once, in the order of [`Cause`].
pub fn causes(input: &Input<'_>) -> Vec<Cause> {
    let mut causes: Vec<Cause> = CHAIN.iter().filter_map(|check| check(input)).collect();
    causes.sort_unstable();
    causes.dedup();
    causes
}

impl Input<'_> {
    fn existing(&self) -> &ExistingObjects {
        &self.gathered.existing
    }

    fn bootstrap(&self) -> Option<&SecretView> {
        self.existing().bootstrap.as_deref()
    }

    /// The script of an edge pool that has a bootstrap Secret.
    fn edge_script(&self) -> Option<&SecretView> {
        self.bootstrap().filter(|_| self.is_edge)?;
        self.existing().edge_script.as_deref()
    }

    /// The kubeconfig Secret of a pool that needs one and has a bootstrap Secret.
    fn kubeconfig(&self) -> Option<&SecretView> {
        self.bootstrap().filter(|_| self.needs_kubeconfig_secret)?;
        self.existing().kubeconfig.as_deref()
    }

    /// The provisioning Secret that the bootstrap Secret names.
    fn provisioning(&self) -> Option<&Arc<SecretView>> {
        let named = self.bootstrap()?.meta.annotation(names::PROVISIONING_SECRET)?;
        self.existing()
            .provisioning
            .iter()
            .find(|secret| secret.meta.name == named)
    }

    fn owns(&self, meta: &Meta) -> bool {
        self.ownership.are_on(meta)
    }
}

fn because(cause: Cause, if_so: bool) -> Option<Cause> {
    if_so.then_some(cause)
}

fn bootstrap_secret_does_not_exist(input: &Input<'_>) -> Option<Cause> {
    because(Cause::Missing, input.bootstrap().is_none())
}

/// Another version of this program may fill documents in another way, so each process compares once what another program has filled in.
fn documents_are_of_another_program(input: &Input<'_>) -> Option<Cause> {
    let Gathered { memory, program, .. } = input.gathered;
    let made_by = input.bootstrap()?.meta.annotation(names::PROGRAM);
    let is_own = made_by.is_some_and(|made_by| !program.is_empty() && made_by == program);
    let (document, wanted) = (
        input.bootstrap()?.meta.annotation(names::DOCUMENT_MAC),
        input.wanted.as_ref()?,
    );
    // While versions run side by side, another one may have published since.
    let is_verified = memory.verified.as_ref().is_some_and(|verified| {
        verified.inputs_mac == wanted.inputs_mac && Some(verified.document_mac.as_str()) == document
    });
    because(Cause::Unverified, !is_own && !is_verified)
}

fn bootstrap_secret_has_another_revision(input: &Input<'_>) -> Option<Cause> {
    let revision = input
        .bootstrap()?
        .meta
        .annotation(names::MACHINE_DEPLOYMENT_REVISION);
    because(
        Cause::NewRevision,
        revision != Some(input.wanted.as_ref()?.revision),
    )
}

fn bootstrap_secret_has_other_inputs(input: &Input<'_>) -> Option<Cause> {
    let mac = input.bootstrap()?.meta.annotation(names::INPUTS_MAC);
    because(Cause::NewContent, mac != Some(input.wanted.as_ref()?.inputs_mac))
}

fn bootstrap_secret_is_of_another_content(input: &Input<'_>) -> Option<Cause> {
    let from = input.bootstrap()?.meta.annotation(names::PUBLISHED_FROM);
    because(
        Cause::NewContent,
        from != Some(&input.wanted.as_ref()?.published_from),
    )
}

fn bootstrap_secret_breaks_its_seal(input: &Input<'_>) -> Option<Cause> {
    because(
        Cause::Modified,
        !is_sealed(&input.gathered.key, input.bootstrap()?),
    )
}

/// The Secret could not be replaced in one write any more.
fn bootstrap_secret_is_immutable(input: &Input<'_>) -> Option<Cause> {
    because(Cause::Modified, input.bootstrap()?.immutable)
}

fn bootstrap_secret_lost_its_owner(input: &Input<'_>) -> Option<Cause> {
    because(Cause::Modified, !input.owns(&input.bootstrap()?.meta))
}

fn bootstrap_secret_is_marked_as_orphan(input: &Input<'_>) -> Option<Cause> {
    because(
        Cause::Modified,
        input
            .bootstrap()?
            .meta
            .annotation(names::ORPHANED_SINCE)
            .is_some(),
    )
}

fn edge_script_does_not_exist(input: &Input<'_>) -> Option<Cause> {
    input.bootstrap()?;
    because(Cause::Modified, input.is_edge && input.edge_script().is_none())
}

fn edge_script_breaks_its_seal(input: &Input<'_>) -> Option<Cause> {
    because(
        Cause::Modified,
        !is_sealed(&input.gathered.key, input.edge_script()?),
    )
}

/// Script and bootstrap Secret are written with the same tokens, so they have the same annotations.
fn edge_script_has_other_tokens(input: &Input<'_>) -> Option<Cause> {
    let (script, bootstrap) = (&input.edge_script()?.meta, &input.bootstrap()?.meta);
    because(
        Cause::Modified,
        SEALED
            .iter()
            .any(|name| script.annotation(name) != bootstrap.annotation(name)),
    )
}

fn edge_script_is_immutable(input: &Input<'_>) -> Option<Cause> {
    because(Cause::Modified, input.edge_script()?.immutable)
}

fn edge_script_lost_its_owner(input: &Input<'_>) -> Option<Cause> {
    because(Cause::Modified, !input.owns(&input.edge_script()?.meta))
}

fn edge_script_is_marked_as_orphan(input: &Input<'_>) -> Option<Cause> {
    because(
        Cause::Modified,
        input
            .edge_script()?
            .meta
            .annotation(names::ORPHANED_SINCE)
            .is_some(),
    )
}

fn kubeconfig_secret_breaks_its_seal(input: &Input<'_>) -> Option<Cause> {
    because(
        Cause::Modified,
        !is_sealed(&input.gathered.key, input.kubeconfig()?),
    )
}

fn kubeconfig_secret_has_other_tokens(input: &Input<'_>) -> Option<Cause> {
    let (kubeconfig, bootstrap) = (input.kubeconfig()?, input.bootstrap()?);
    because(
        Cause::Modified,
        !kubeconfig_secret::has_tokens_of(kubeconfig, bootstrap),
    )
}

fn kubeconfig_secret_is_immutable(input: &Input<'_>) -> Option<Cause> {
    because(Cause::Modified, input.kubeconfig()?.immutable)
}

fn kubeconfig_secret_lost_its_owner(input: &Input<'_>) -> Option<Cause> {
    because(Cause::Modified, !input.owns(&input.kubeconfig()?.meta))
}

fn kubeconfig_secret_is_marked_as_orphan(input: &Input<'_>) -> Option<Cause> {
    because(
        Cause::Modified,
        input
            .kubeconfig()?
            .meta
            .annotation(names::ORPHANED_SINCE)
            .is_some(),
    )
}

/// Tokens die with the ServiceAccount and with the Secret that they are bound to. Either Secret that a pool needs is covered: its
/// provisioning Secret, and the kubeconfig Secret.
fn tokens_are_bound_to_other_objects(input: &Input<'_>) -> Option<Cause> {
    let recorded = input.bootstrap()?.meta.annotation(names::BOUND_TO);
    let account = input
        .existing()
        .account
        .as_ref()
        .map(|account| account.uid.as_str());
    let document = input.provisioning().map(|secret| secret.meta.uid.as_str());
    let current = if input.needs_kubeconfig_secret {
        let kubeconfig = input.kubeconfig().map(|secret| secret.meta.uid.as_str());
        bound_to_kubeconfig(account, input.joins_by, document, kubeconfig)
    } else {
        bound_to(account, input.joins_by, document)
    };
    because(
        Cause::TokensInvalid,
        current.is_none() || recorded != current.as_deref(),
    )
}

/// That it is missing is for [`tokens_are_bound_to_other_objects`] to say.
fn provisioning_secret_is_altered(input: &Input<'_>) -> Option<Cause> {
    let secret = input.provisioning()?;
    let marked = secret.meta.annotation(names::ORPHANED_SINCE).is_some();
    because(
        Cause::Modified,
        !secret.immutable || !input.owns(&secret.meta) || marked,
    )
}

/// Without a readable time the annotation was altered, and renewal is due now.
fn renewal_is_due(input: &Input<'_>) -> Option<Cause> {
    let at = input.bootstrap()?.meta.time(names::RENEW_AT);
    because(Cause::RenewalDue, at.is_none_or(|at| input.gathered.now >= at))
}

fn role_does_not_open_the_provisioning_secret(input: &Input<'_>) -> Option<Cause> {
    let named = input
        .bootstrap()?
        .meta
        .annotation(names::PROVISIONING_SECRET)
        .unwrap_or_default();
    let opened = input
        .existing()
        .role
        .as_ref()
        .and_then(|role| role.secrets.as_ref());
    because(
        Cause::RoleModified,
        !opened.is_some_and(|opened| opened.iter().any(|name| name == named)),
    )
}

fn role_does_not_open_the_kubeconfig_secret(input: &Input<'_>) -> Option<Cause> {
    let kubeconfig = &input.kubeconfig()?.meta.name;
    let role = input.existing().role.as_ref();
    let opened = role.and_then(|role| role.secrets.as_ref());
    because(
        Cause::RoleModified,
        !opened.is_some_and(|opened| opened.contains(kubeconfig)),
    )
}

fn role_binding_does_not_bind(input: &Input<'_>) -> Option<Cause> {
    input.bootstrap()?;
    because(
        Cause::RoleModified,
        !input
            .existing()
            .binding
            .as_ref()
            .is_some_and(|binding| binding.good),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::view::{BindingView, RoleView};
    use crate::plan::fixtures::*;

    type Edit = fn(&mut Gathered);

    /// What one check says of a situation.
    fn says(check: Check, gathered: &Gathered) -> Option<Cause> {
        let config = gathered.config.as_deref().unwrap();
        let inputs = crate::plan::inputs::choose(gathered).unwrap();
        let md = config.machine_deployment.as_ref().unwrap();
        let ownership =
            OwnershipLabels::new(&gathered.name, &gathered.pool, &gathered.clusters.management, md);
        let joins_by = gathered.node_account.as_deref();
        let input = Input {
            gathered,
            is_edge: config.is_edge,
            needs_kubeconfig_secret: config.needs_kubeconfig_secret,
            wanted: Some(Wanted {
                revision: "1",
                published_from: config.published_from(),
                inputs_mac: &inputs.mac,
            }),
            ownership: &ownership,
            joins_by,
        };
        check(&input)
    }

    /// Each check speaks of the situations of its table, and of a pool that is as it should be it says nothing.
    fn table(check: Check, cause: Cause, situations: &[(&str, Edit)]) {
        table_of(published_edge, check, cause, situations);
    }

    fn table_of(of: fn() -> Gathered, check: Check, cause: Cause, situations: &[(&str, Edit)]) {
        assert_eq!(says(check, &published()), None, "published");
        assert_eq!(says(check, &published_edge()), None, "published, edge");
        assert_eq!(
            says(check, &published_late()),
            None,
            "published, with a kubeconfig Secret"
        );
        if cause != Cause::Missing {
            assert_eq!(says(check, &fresh()), None, "nothing exists");
        }
        for (what, edit) in situations {
            let mut gathered = of();
            edit(&mut gathered);
            assert_eq!(says(check, &gathered), Some(cause), "{what}");
        }
    }

    fn annotate(secret: &mut SecretView, name: &str, value: &str) {
        secret.meta.annotations.insert(name.into(), value.into());
    }

    #[test]
    fn missing() {
        table(
            bootstrap_secret_does_not_exist,
            Cause::Missing,
            &[("deleted", |g| g.existing.bootstrap = None)],
        );
    }

    #[test]
    fn unverified() {
        table(
            documents_are_of_another_program,
            Cause::Unverified,
            &[
                ("a new process of an unknown program", |g| {
                    g.memory.verified = None
                }),
                ("verified with other inputs", |g| {
                    g.memory.verified.as_mut().unwrap().inputs_mac = "other".into()
                }),
                ("published by another program since", |g| {
                    edit_bootstrap(g, |s| annotate(s, names::DOCUMENT_MAC, "other"))
                }),
                ("a new process of another program", |g| {
                    g.memory.verified = None;
                    edit_bootstrap(g, |s| annotate(s, names::PROGRAM, "other"));
                }),
                ("a program that can't read its file", |g| {
                    g.memory.verified = None;
                    g.program = String::new();
                    edit_bootstrap(g, |s| annotate(s, names::PROGRAM, ""));
                }),
            ],
        );
    }

    #[test]
    fn new_revision() {
        table(
            bootstrap_secret_has_another_revision,
            Cause::NewRevision,
            &[
                ("another", |g| {
                    edit_bootstrap(g, |s| annotate(s, names::MACHINE_DEPLOYMENT_REVISION, "2"))
                }),
                ("none", |g| {
                    edit_bootstrap(g, |s| {
                        drop(s.meta.annotations.remove(names::MACHINE_DEPLOYMENT_REVISION))
                    });
                }),
            ],
        );
    }

    #[test]
    fn new_content() {
        table(
            bootstrap_secret_has_other_inputs,
            Cause::NewContent,
            &[
                ("another digest", |g| {
                    edit_rendered(g, |rendered| rendered.digest = "other".into())
                }),
                ("another HMAC key", |g| {
                    g.key = crate::model::hmac_key::HmacKey::new([8; 32])
                }),
            ],
        );
        table(
            bootstrap_secret_is_of_another_content,
            Cause::NewContent,
            &[
                ("another digest", |g| {
                    edit_rendered(g, |rendered| rendered.digest = "other".into())
                }),
                ("another config of that name", |g| {
                    edit_config(g, |config| config.uid = "other".into())
                }),
            ],
        );
    }

    #[test]
    fn bootstrap_secret_altered() {
        table(
            bootstrap_secret_breaks_its_seal,
            Cause::Modified,
            &[
                ("other data", |g| {
                    edit_bootstrap(g, |s| s.content = Some("other".into()))
                }),
                ("no data", |g| edit_bootstrap(g, |s| s.content = None)),
                ("renewal put off", |g| {
                    edit_bootstrap(g, |s| annotate(s, names::RENEW_AT, "2099-01-01T00:00:00Z"))
                }),
                ("no seal", |g| {
                    edit_bootstrap(g, |s| drop(s.meta.annotations.remove(names::CONTENT_MAC)))
                }),
            ],
        );
        table(
            bootstrap_secret_is_immutable,
            Cause::Modified,
            &[("locked", |g| {
                edit_bootstrap(g, |s| s.immutable = true);
            })],
        );
        table(
            bootstrap_secret_lost_its_owner,
            Cause::Modified,
            &[
                ("no labels", |g| edit_bootstrap(g, |s| s.meta.labels.clear())),
                ("another config", |g| {
                    edit_bootstrap(g, |s| annotate(s, names::CONFIG, "other"))
                }),
            ],
        );
        table(
            bootstrap_secret_is_marked_as_orphan,
            Cause::Modified,
            &[("marked", |g| {
                edit_bootstrap(g, |s| annotate(s, names::ORPHANED_SINCE, "2026-01-01T00:00:00Z"));
            })],
        );
    }

    #[test]
    fn edge_script_altered() {
        table(
            edge_script_does_not_exist,
            Cause::Modified,
            &[("deleted", |g| g.existing.edge_script = None)],
        );
        table(
            edge_script_breaks_its_seal,
            Cause::Modified,
            &[("other data", |g| {
                edit_script(g, |s| s.content = Some("other".into()));
            })],
        );
        table(
            edge_script_has_other_tokens,
            Cause::Modified,
            &[("older tokens", |g| {
                edit_script(g, |s| annotate(s, names::EXPIRES, "2026-01-01T00:00:00Z"));
            })],
        );
        table(
            edge_script_is_immutable,
            Cause::Modified,
            &[("locked", |g| edit_script(g, |s| s.immutable = true))],
        );
        table(
            edge_script_lost_its_owner,
            Cause::Modified,
            &[("no labels", |g| {
                edit_script(g, |s| s.meta.labels.clear());
            })],
        );
        table(
            edge_script_is_marked_as_orphan,
            Cause::Modified,
            &[("marked", |g| {
                edit_script(g, |s| annotate(s, names::ORPHANED_SINCE, "2026-01-01T00:00:00Z"));
            })],
        );
    }

    #[test]
    fn kubeconfig_secret_altered() {
        let altered = |check, situations: &[(&str, Edit)]| {
            table_of(published_late, check, Cause::Modified, situations);
            // Where it is not needed it is only kept for a while.
            for (what, edit) in situations {
                let mut gathered = published_late();
                edit_config(&mut gathered, |config| config.needs_kubeconfig_secret = false);
                edit(&mut gathered);
                assert_eq!(says(check, &gathered), None, "{what}, and not needed");
            }
        };
        altered(
            kubeconfig_secret_breaks_its_seal,
            &[
                ("other data", |g| {
                    edit_kubeconfig(g, |s| s.content = Some("other".into()));
                }),
                ("bound to another", |g| {
                    edit_kubeconfig(g, |s| annotate(s, names::BOUND_TO, "a/j/other"));
                }),
                ("no seal", |g| {
                    edit_kubeconfig(g, |s| drop(s.meta.annotations.remove(names::CONTENT_MAC)));
                }),
            ],
        );
        altered(
            kubeconfig_secret_has_other_tokens,
            &[("an older one, put back by hand", |g| {
                let key = g.key.clone();
                edit_kubeconfig(g, |s| {
                    annotate(s, names::EXPIRES, "2026-01-01T00:00:00Z");
                    reseal(&key, s);
                });
            })],
        );
        altered(
            kubeconfig_secret_is_immutable,
            &[("locked", |g| edit_kubeconfig(g, |s| s.immutable = true))],
        );
        altered(
            kubeconfig_secret_lost_its_owner,
            &[("no labels", |g| {
                edit_kubeconfig(g, |s| s.meta.labels.clear());
            })],
        );
        altered(
            kubeconfig_secret_is_marked_as_orphan,
            &[("marked", |g| {
                edit_kubeconfig(g, |s| annotate(s, names::ORPHANED_SINCE, "2026-01-01T00:00:00Z"));
            })],
        );
    }

    #[test]
    fn tokens_dead_that_are_bound_to_a_kubeconfig_secret() {
        table_of(
            published_late,
            tokens_are_bound_to_other_objects,
            Cause::TokensInvalid,
            &[
                ("another account", |g| {
                    g.existing.account = Some(Arc::new(meta("new", &[])))
                }),
                ("no node account", |g| g.node_account = None),
                ("no document", |g| g.existing.provisioning.clear()),
                ("another document of that name", |g| {
                    Arc::make_mut(&mut g.existing.provisioning[0]).meta.uid = "other".into();
                }),
                ("no kubeconfig Secret", |g| g.existing.kubeconfig = None),
                ("another kubeconfig Secret", |g| {
                    edit_kubeconfig(g, |s| s.meta.uid = "other".into());
                }),
                ("not needed any more", |g| {
                    edit_config(g, |config| config.needs_kubeconfig_secret = false);
                }),
            ],
        );
        table(
            tokens_are_bound_to_other_objects,
            Cause::TokensInvalid,
            &[("needed from now on", |g| {
                edit_config(g, |config| config.needs_kubeconfig_secret = true);
            })],
        );
    }

    #[test]
    fn tokens_dead() {
        table(
            tokens_are_bound_to_other_objects,
            Cause::TokensInvalid,
            &[
                ("another account", |g| {
                    g.existing.account = Some(Arc::new(meta("new", &[])))
                }),
                ("no account", |g| g.existing.account = None),
                ("another node account", |g| g.node_account = Some("new".into())),
                ("no node account", |g| g.node_account = None),
                ("no document", |g| g.existing.provisioning.clear()),
                ("no record", |g| {
                    edit_bootstrap(g, |s| drop(s.meta.annotations.remove(names::BOUND_TO)))
                }),
            ],
        );
    }

    #[test]
    fn provisioning_secret_altered() {
        fn edit_document(gathered: &mut Gathered, edit: impl FnOnce(&mut SecretView)) {
            edit(Arc::make_mut(&mut gathered.existing.provisioning[0]));
        }
        table(
            provisioning_secret_is_altered,
            Cause::Modified,
            &[
                ("unlocked", |g| edit_document(g, |s| s.immutable = false)),
                ("no labels", |g| edit_document(g, |s| s.meta.labels.clear())),
                ("marked", |g| {
                    edit_document(g, |s| annotate(s, names::ORPHANED_SINCE, "2026-01-01T00:00:00Z"))
                }),
            ],
        );
    }

    #[test]
    fn renewal_due() {
        table(
            renewal_is_due,
            Cause::RenewalDue,
            &[
                ("at its time", |g| g.now = hours(8)),
                ("unreadable", |g| {
                    edit_bootstrap(g, |s| annotate(s, names::RENEW_AT, "soon"))
                }),
                ("no time", |g| {
                    edit_bootstrap(g, |s| drop(s.meta.annotations.remove(names::RENEW_AT)))
                }),
            ],
        );
    }

    #[test]
    fn role_altered() {
        table(
            role_does_not_open_the_provisioning_secret,
            Cause::RoleModified,
            &[
                ("deleted", |g| g.existing.role = None),
                ("other rules", |g| {
                    g.existing.role = Some(Arc::new(RoleView::default()))
                }),
                ("opens another", |g| {
                    let secrets = Some(vec!["other".to_owned()]);
                    g.existing.role = Some(Arc::new(RoleView {
                        meta: meta("role", &[]),
                        secrets,
                    }));
                }),
            ],
        );
        table_of(
            published_late,
            role_does_not_open_the_kubeconfig_secret,
            Cause::RoleModified,
            &[
                ("deleted", |g| g.existing.role = None),
                ("opens the document only", |g| {
                    let secrets = Some(vec!["document".to_owned()]);
                    g.existing.role = Some(Arc::new(RoleView {
                        meta: meta("role", &[]),
                        secrets,
                    }));
                }),
            ],
        );
        table(
            role_binding_does_not_bind,
            Cause::RoleModified,
            &[
                ("deleted", |g| g.existing.binding = None),
                ("altered", |g| {
                    g.existing.binding = Some(Arc::new(BindingView::default()))
                }),
            ],
        );
    }
}
