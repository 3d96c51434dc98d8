//! Each promise, kept and broken.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use jiff::{SignedDuration, Timestamp};
use osm_api::names;
use osm_testkit::fixtures::UserData;
use serde_json::{Value, json};

use super::*;

const MD_UID: &str = "md-uid";
const BOOTSTRAP: &str = "p-kube-system-bootstrap-config";

/// Documents of these tests: tokens, name and digest as JSON.
fn parse(text: String) -> anyhow::Result<UserData> {
    let parts: [String; 4] = serde_json::from_str(&text)?;
    let [api_token, kubelet_token, provisioning_secret, provisioning_digest] = parts;
    Ok(UserData {
        text,
        api_token,
        kubelet_token,
        provisioning_secret,
        provisioning_digest,
    })
}

fn token(name: &str, expires: Timestamp) -> String {
    let payload = json!({"exp": expires.as_second(), "name": name}).to_string();
    format!("h.{}.s", URL_SAFE_NO_PAD.encode(payload))
}

/// A pool's history, kept right unless a test breaks it.
struct History {
    observer: Observer,
    now: Timestamp,
    version: u64,
}

impl History {
    /// A pool that is published at revision 1, with provisioning Secret `one`.
    fn published() -> Self {
        let mut history = Self {
            observer: Observer::new(parse, SignedDuration::ZERO),
            now: Timestamp::from_second(1_000_000).unwrap(),
            version: 0,
        };
        history.pool(What::Added, "1");
        history.config("1", json!({}));
        history.made(What::Added, "ServiceAccount", "account", json!({}));
        history.provisioning(What::Added, "one");
        history.made(What::Added, "Role", "role", json!({}));
        history.bootstrap(What::Added, "1", "one");
        history.ask();
        history
    }

    fn id() -> String {
        names::pool_id("kube-system", "p", MD_UID)
    }

    fn change(&mut self, what: What, mut object: Value) {
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        self.observer.observe(&Change {
            at: self.now,
            what,
            object,
        });
    }

    fn pool(&mut self, what: What, revision: &str) {
        let annotations = json!({names::REVISION: revision});
        let metadata =
            json!({"name": "p", "namespace": "kube-system", "uid": MD_UID, "annotations": annotations});
        self.change(what, json!({"kind": "MachineDeployment", "metadata": metadata}));
    }

    fn config(&mut self, revision: &str, retired: Value) {
        self.config_with(revision, retired, |_| {});
    }

    fn config_with(&mut self, revision: &str, retired: Value, edit: impl FnOnce(&mut Value)) {
        let condition = |type_: &str| json!({"type": type_, "status": "True", "observedGeneration": 1});
        let mut config = json!({"kind": "OperatingSystemConfig",
                "metadata": {"name": "p-kube-system-config", "namespace": "osm", "generation": 1, "labels": {names::POOL: Self::id()}},
                "spec": {"poolRef": {"uid": MD_UID}},
                "status": {"rendered": {"revision": revision}, "conditions": [condition("Rendered"), condition("Published"), condition("Ready")],
                    "published": {"revision": revision}, "retired": retired}});
        edit(&mut config);
        self.change(What::Modified, config);
    }

    fn made(&mut self, what: What, kind: &str, name: &str, more: Value) {
        let mut object = json!({"kind": kind,
            "metadata": {"name": name, "namespace": "cloud-init-settings", "labels": {names::POOL: Self::id()}}});
        for (key, value) in more.as_object().unwrap() {
            object[key] = value.clone();
        }
        self.change(what, object);
    }

    fn provisioning(&mut self, what: What, name: &str) {
        let data = STANDARD.encode(name);
        self.made(
            what,
            "Secret",
            name,
            json!({"immutable": true, "data": {"cloud-config": data}}),
        );
    }

    fn document(&self, provisioning: &str, digest: &str) -> Value {
        let expires = self.now + SignedDuration::from_hours(24);
        let document = json!([
            token("api", expires),
            token("kubelet", expires),
            provisioning,
            digest
        ]);
        json!({"cloud-config": STANDARD.encode(document.to_string())})
    }

    fn bootstrap(&mut self, what: What, revision: &str, provisioning: &str) {
        let data = self.document(
            provisioning,
            &osm_api::digest::sha256_hex(provisioning.as_bytes()),
        );
        self.bootstrap_with(what, revision, json!({"data": data}));
    }

    fn bootstrap_with(&mut self, what: What, revision: &str, more: Value) {
        let mut object = json!({"kind": "Secret", "metadata": {"name": BOOTSTRAP, "namespace": "cloud-init-settings",
            "labels": {names::POOL: Self::id()}, "annotations": {names::MACHINE_DEPLOYMENT_REVISION: revision}}});
        for (key, value) in more.as_object().unwrap() {
            object[key] = value.clone();
        }
        self.change(what, object);
    }

    fn ask(&mut self) {
        self.observer.ask(self.now, |_| true);
    }

    /// Exactly these promises are broken, in this order.
    fn broke(&self, promises: &[Invariant]) {
        let broken: Vec<Invariant> = self
            .observer
            .violations()
            .iter()
            .map(|broken| broken.invariant)
            .collect();
        assert_eq!(broken, promises, "{:#?}", self.observer.violations());
    }
}

#[test]
fn a_life_without_faults_breaks_nothing() {
    let mut history = History::published();
    for round in 2..6 {
        history.now += SignedDuration::from_hours(12);
        let (revision, provisioning) = (round.to_string(), format!("document-{round}"));
        history.pool(What::Modified, &revision);
        history.config(&revision, Value::Null);
        history.provisioning(What::Added, &provisioning);
        history.bootstrap(What::Modified, &revision, &provisioning);
        history.ask();
        history.observer.settled(history.now);
    }
    // The first document's tokens are long dead.
    history.provisioning(What::Deleted, "one");
    assert_eq!(
        history.observer.probes(history.now).len(),
        4,
        "two tokens, of now and of twelve hours ago"
    );
    history.broke(&[]);
    history.pool(What::Deleted, "5");
    history.config("5", json!({"uid": MD_UID}));
    history.made(What::Deleted, "ServiceAccount", "account", json!({}));
    for name in ["document-2", "document-3", "document-4", "document-5"] {
        history.provisioning(What::Deleted, name);
    }
    history.bootstrap(What::Deleted, "5", "document-5");
    history.made(What::Deleted, "Role", "role", json!({}));
    history.change(
        What::Deleted,
        json!({"kind": "OperatingSystemConfig", "metadata": {"name": "p-kube-system-config", "namespace": "osm"}}),
    );
    history.observer.settled(history.now);
    history.observer.quiet_since(history.now);
    history.broke(&[]);
}

#[test]
fn a_bootstrap_secret_that_is_absent_or_leads_nowhere() {
    let mut history = History::published();
    history.bootstrap(What::Deleted, "1", "one");
    history.broke(&[Invariant::Reachable]);

    let mut history = History::published();
    history.bootstrap(What::Modified, "1", "missing");
    history.broke(&[Invariant::Reachable]);

    let mut history = History::published();
    let of_another =
        json!({"name": "other", "namespace": "cloud-init-settings", "labels": {names::POOL: "other"}});
    let data = json!({"cloud-config": STANDARD.encode("other")});
    history.change(
        What::Added,
        json!({"kind": "Secret", "metadata": of_another, "data": data}),
    );
    history.bootstrap(What::Modified, "1", "other");
    history.broke(&[Invariant::Reachable]);

    let mut history = History::published();
    history.bootstrap_with(What::Modified, "1", json!({"data": {}}));
    history.broke(&[Invariant::Reachable]);

    let mut history = History::published();
    history
        .observer
        .ask(history.now, |probe| probe.purpose == Purpose::Join);
    history.broke(&[Invariant::Reachable]);

    let mut history = History::published();
    history
        .observer
        .ask(history.now, |probe| probe.purpose != Purpose::Join);
    history.broke(&[Invariant::Reachable]);
}

#[test]
fn an_immutable_bootstrap_secret_may_be_replaced() {
    let mut history = History::published();
    history.bootstrap_with(What::Deleted, "1", json!({"immutable": true}));
    history.broke(&[]);
    history.bootstrap(What::Added, "1", "one");
    history.ask();
    history.observer.settled(history.now);
    history.broke(&[]);
}

#[test]
fn a_revision_goes_back_only_with_its_machine_deployment() {
    let mut history = History::published();
    history.pool(What::Modified, "2");
    history.bootstrap(What::Modified, "2", "one");
    history.bootstrap(What::Modified, "1", "one");
    history.broke(&[Invariant::Forward]);

    let mut history = History::published();
    history.bootstrap(What::Modified, "2", "one");
    history.broke(&[Invariant::Forward]);

    let mut history = History::published();
    history.pool(What::Modified, "2");
    history.config("2", Value::Null);
    history.config("1", Value::Null);
    history.broke(&[Invariant::Forward]);

    let mut history = History::published();
    for revision in ["2", "1"] {
        history.pool(What::Modified, revision);
        history.config(revision, Value::Null);
        history.bootstrap(What::Modified, revision, "one");
    }
    history.broke(&[]);
}

#[test]
fn a_digest_that_does_not_fit() {
    let mut history = History::published();
    let data = history.document("one", &osm_api::digest::sha256_hex(b"another"));
    history.bootstrap_with(What::Modified, "1", json!({"data": data}));
    history.broke(&[Invariant::Digest]);
}

#[test]
fn what_does_not_converge() {
    let mut history = History::published();
    history.pool(What::Modified, "2");
    history.observer.settled(history.now);
    history.broke(&[Invariant::Converges]);

    let mut history = History::published();
    history.now += SignedDuration::from_hours(25);
    history.observer.settled(history.now);
    history.broke(&[Invariant::Converges]);

    let mut history = History::published();
    history.config("1", Value::Null);
    history.pool(What::Modified, "2");
    history.config("2", Value::Null);
    history.observer.settled(history.now);
    history.broke(&[Invariant::Converges]);

    let mut history = History::published();
    history.config_with("1", Value::Null, |config| {
        let conditions = config["status"]["conditions"].as_array_mut().unwrap();
        conditions.push(json!({"type": "Current", "status": "False"}));
    });
    history.observer.settled(history.now);
    history.broke(&[Invariant::Converges]);
}

#[test]
fn documents_go_only_with_their_pool() {
    let without = |config: &mut Value| config["status"]["rendered"] = Value::Null;
    let lose = |config: &mut Value| drop(config["status"].as_object_mut().unwrap().remove("rendered"));
    for (retired, broken) in [
        (Value::Null, &[Invariant::NotLost][..]),
        (json!({"uid": "other"}), &[]),
    ] {
        let mut history = History::published();
        history.config_with("1", retired.clone(), without);
        history.config_with("1", retired, lose);
        history.broke(broken);
    }
}

#[test]
fn a_document_that_a_token_may_still_fetch() {
    let mut history = History::published();
    history.provisioning(What::Added, "two");
    history.bootstrap(What::Modified, "1", "two");
    history.provisioning(What::Deleted, "one");
    history.broke(&[Invariant::Kept]);

    // Or whose token is refused.
    let mut history = History::published();
    history.now += SignedDuration::from_hours(1);
    history.provisioning(What::Added, "two");
    history.bootstrap(What::Modified, "1", "two");
    history.observer.ask(history.now, |probe| {
        probe.purpose != Purpose::Fetch("one".to_owned())
    });
    history.broke(&[Invariant::Kept]);
}

#[test]
fn a_kubeconfig_that_a_document_refers_to() {
    let kubeconfig = names::kubeconfig_secret_name(&History::id());
    let published = || {
        let mut history = History::published();
        history.made(What::Added, "Secret", &kubeconfig, json!({}));
        let text = format!("fetch {kubeconfig}");
        let data = json!({"cloud-config": STANDARD.encode(&text)});
        history.made(
            What::Added,
            "Secret",
            "two",
            json!({"immutable": true, "data": data}),
        );
        let data = history.document("two", &osm_api::digest::sha256_hex(text.as_bytes()));
        history.bootstrap_with(What::Modified, "1", json!({"data": data}));
        history
    };
    let mut history = published();
    history.ask();
    history.observer.settled(history.now);
    history.broke(&[]);
    history.made(What::Deleted, "Secret", &kubeconfig, json!({}));
    history.broke(&[Invariant::Kept]);

    // Or that the Role does not open.
    let mut history = published();
    history.observer.ask(history.now, |probe| {
        probe.purpose != Purpose::Fetch(kubeconfig.clone())
    });
    history.broke(&[Invariant::Reachable]);
}

#[test]
fn a_retired_pool_is_undone_wholly_and_credentials_first() {
    let mut history = History::published();
    history.pool(What::Deleted, "1");
    history.provisioning(What::Deleted, "one");
    history.broke(&[Invariant::Kept]);

    // A repair that began before the pool went restores what was damaged.
    let mut history = History::published();
    history.made(What::Added, "RoleBinding", "binding", json!({}));
    history
        .observer
        .interferes("RoleBinding", "binding", "", What::Modified);
    history.made(What::Modified, "RoleBinding", "binding", json!({"subjects": []}));
    history.pool(What::Deleted, "1");
    history.made(What::Deleted, "RoleBinding", "binding", json!({}));
    history.broke(&[]);

    // Or one of what was damaged before secret-syncer learned that the pool is gone.
    let mut history = History::published();
    history.made(What::Added, "RoleBinding", "binding", json!({}));
    history.pool(What::Deleted, "1");
    history
        .observer
        .interferes("RoleBinding", "binding", "", What::Modified);
    history.made(What::Modified, "RoleBinding", "binding", json!({"subjects": []}));
    history.made(What::Deleted, "RoleBinding", "binding", json!({}));
    history.broke(&[]);

    let mut history = History::published();
    history.pool(What::Deleted, "1");
    history.observer.settled(history.now);
    assert_eq!(
        history.observer.violations().len(),
        5,
        "config, two Secrets, account and Role"
    );
    assert!(
        history
            .observer
            .violations()
            .iter()
            .all(|broken| broken.invariant == Invariant::Kept)
    );
}

#[test]
fn writes_that_go_on() {
    let mut history = History::published();
    let since = history.now;
    history.observer.quiet_since(since);
    history.now += SignedDuration::from_secs(1);
    // The same object shown once more does not count as a write.
    history.version -= 1;
    history.bootstrap(What::Added, "1", "one");
    history.pool(What::Modified, "1");
    history.observer.quiet_since(since);
    history.broke(&[]);
    history.made(What::Modified, "Role", "role", json!({}));
    history.observer.quiet_since(since);
    history.broke(&[Invariant::Quiet]);
}

#[test]
fn what_is_lost_without_a_retired_pool() {
    for kind in ["ServiceAccount", "Role"] {
        let mut history = History::published();
        history.made(What::Deleted, kind, "any", json!({}));
        history.broke(&[Invariant::NotLost]);
    }
    let mut history = History::published();
    history.config("1", json!({"uid": MD_UID}));
    history.broke(&[Invariant::NotLost]);
}

#[test]
fn interference_is_excused_until_it_is_put_right() {
    let mut history = History::published();
    history
        .observer
        .interferes("ServiceAccount", "account", "", What::Deleted);
    history.made(What::Deleted, "ServiceAccount", "account", json!({}));
    history.observer.ask(history.now, |_| false);
    history.broke(&[]);
    history.made(What::Added, "ServiceAccount", "account", json!({}));
    history.now += SignedDuration::from_secs(1);
    history.bootstrap(What::Modified, "1", "one");
    let good = history.now + SignedDuration::from_hours(24);
    history.observer.ask(history.now, |probe| probe.expires == good);
    assert_eq!(
        history.observer.probes(history.now).len(),
        2,
        "the old tokens are dead, and nobody is to blame"
    );
    history.broke(&[]);
    history.observer.ask(history.now, |_| false);
    history.broke(&[Invariant::Reachable; 2]);

    // A pool is not good while a document is missing, although its tokens may fetch it.
    let mut history = History::published();
    history.observer.interferes("Secret", "one", "", What::Deleted);
    history.provisioning(What::Deleted, "one");
    history.ask();
    history.observer.ask(history.now, |_| false);
    history.broke(&[]);
    // Nor may anybody fetch it later.
    history.provisioning(What::Added, "two");
    history.bootstrap(What::Modified, "1", "two");
    history.ask();
    history
        .observer
        .ask(history.now, |probe| probe.purpose != Purpose::Fetch("one".into()));
    history.broke(&[]);

    // Only the next change is excused, and only what was named.
    let mut history = History::published();
    history
        .observer
        .interferes("Secret", BOOTSTRAP, "", What::Modified);
    history.bootstrap_with(What::Modified, "9", json!({"data": {}}));
    history.bootstrap(What::Modified, "9", "one");
    history.broke(&[Invariant::Forward]);

    // A client that marks what someone else has damaged does not answer for the damage either.
    let mut history = History::published();
    history
        .observer
        .interferes("Secret", BOOTSTRAP, "", What::Modified);
    history.bootstrap_with(What::Modified, "9", json!({"data": {}}));
    history.bootstrap_with(What::Modified, "9", json!({"data": {}, "immutable": false}));
    history.broke(&[]);

    // What a service wrote just before is seen first.
    let mut history = History::published();
    history
        .observer
        .interferes("Secret", BOOTSTRAP, "", What::Deleted);
    history.bootstrap(What::Modified, "1", "one");
    history.bootstrap(What::Deleted, "1", "one");
    history.bootstrap(What::Added, "1", "one");
    history.observer.ask(history.now, |_| true);
    history.broke(&[]);
    // Answers to what was asked before count for nothing.
    let before = history.now;
    history.now += SignedDuration::from_secs(1);
    history.observer.interferes("Role", "role", "", What::Deleted);
    history.made(What::Deleted, "Role", "role", json!({}));
    history.observer.ask(before, |_| true);
    history.observer.ask(history.now, |_| false);
    history.broke(&[]);

    // Two in a row, before the first is seen; whose deletion nobody told of is not excused.
    let mut history = History::published();
    let gone = |history: &mut History, uid: &str| {
        let metadata = json!({"name": BOOTSTRAP, "namespace": "cloud-init-settings", "uid": uid,
            "labels": {names::POOL: History::id()}});
        history.bootstrap_with(What::Deleted, "1", json!({"metadata": metadata}));
    };
    for uid in ["1", "2"] {
        history
            .observer
            .interferes("Secret", BOOTSTRAP, uid, What::Deleted);
    }
    for uid in ["1", "2"] {
        gone(&mut history, uid);
        history.bootstrap(What::Added, "1", "one");
    }
    history.broke(&[]);
    gone(&mut history, "3");
    history.broke(&[Invariant::Reachable]);

    let mut history = History::published();
    history.observer.interferes("Role", "role", "", What::Deleted);
    history.observer.settled(history.now);
    history.broke(&[Invariant::Converges]);
}

#[test]
fn no_token_is_shown() {
    let mut history = History::published();
    let probes = format!("{:?}", history.observer.probes(history.now));
    assert!(probes.contains("expires") && !probes.contains("h."), "{probes}");
}
