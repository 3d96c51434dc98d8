//! The stored objects, and every rule about changing them.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::authorizer::{self, Tokens, User};
use super::kinds::{self, Kind};
use super::request::{Request, Selector, Target, Verb};
use super::schema::Schema;
use super::{Clock, patch};
use crate::invariants::{Change, What};

/// Why a request failed, as the API server says it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code} {reason}: {message}")]
pub struct Failure {
    /// HTTP status code.
    pub code: u16,
    /// Such as `AlreadyExists`.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// Plural of the kind, and the name, that the failure is about.
    pub about: (String, String),
    /// The fields that are wrong, in the form of `details.causes`.
    pub causes: Vec<Value>,
}

impl Failure {
    pub(super) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self {
            code,
            reason,
            message: message.into(),
            about: Default::default(),
            causes: Vec::new(),
        }
    }

    fn about(self, kind: &Kind, name: &str) -> Self {
        Self {
            about: (kind.plural.to_owned(), name.to_owned()),
            ..self
        }
    }

    /// Some failures call what they are about by its kind.
    fn about_one(self, kind: &Kind, name: &str) -> Self {
        Self {
            about: (kind.kind.to_owned(), name.to_owned()),
            ..self
        }
    }

    pub(super) fn conflict(message: impl Into<String>) -> Self {
        Self::new(409, "Conflict", message)
    }

    fn invalid(message: impl Into<String>) -> Self {
        Self::new(422, "Invalid", message)
    }

    pub(super) fn unsupported(what: impl Into<String>) -> Self {
        Self::new(501, "NotImplemented", what)
    }

    pub(super) fn unauthorized() -> Self {
        Self::new(401, "Unauthorized", "Unauthorized")
    }

    /// As a `Status` object.
    pub(super) fn status(&self) -> Value {
        let (kind, name) = &self.about;
        // kubectl shows an invalid object's causes instead of the message.
        let causes = if self.causes.is_empty() && self.reason == "Invalid" {
            vec![json!({"reason": "FieldValueInvalid", "message": self.message})]
        } else {
            self.causes.clone()
        };
        let details = (!kind.is_empty() || !causes.is_empty())
            .then(|| json!({"name": name, "kind": kind, "causes": causes}));
        json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": self.message,
            "reason": self.reason, "details": details, "code": self.code})
    }
}

/// What a request says about itself.
#[derive(Clone, Copy, Default)]
struct Manner {
    /// Nothing is stored.
    is_dry_run: bool,
    /// Fields that the schema doesn't have are refused, not removed.
    is_strict: bool,
    /// Those of a patch are another failure.
    is_patch: bool,
}

/// How much a server remembers, and how often it sends bookmarks.
#[derive(Clone, Copy)]
struct Habits {
    /// So many requests are remembered.
    traced: usize,
    /// So many changes are kept for watches.
    logged: usize,
    /// Between two bookmarks of a watch; `None`: only its end has one.
    bookmarks: Option<Duration>,
}

const ALONE: Habits = Habits {
    traced: 3000,
    logged: 20_000,
    bookmarks: None,
};

/// Of a server that shares a process with many. It sends bookmarks as often as a real one, which is less than
/// the models need that simulate days.
const OF_MANY: Habits = Habits {
    traced: 0,
    logged: 100,
    bookmarks: Some(Duration::from_secs(60)),
};

type Key = (&'static str, String, String);

/// What happened, for watches.
pub(super) struct Logged {
    pub version: u64,
    pub kind: &'static str,
    pub at: tokio::time::Instant,
    pub old: Option<Arc<Value>>,
    /// `None`: deleted, and `old` has the version of the deletion.
    pub new: Option<Arc<Value>>,
}

/// What is stored.
pub struct State {
    clock: Clock,
    version: u64,
    uids: u64,
    habits: Habits,
    /// Plural, namespace and name → object.
    objects: BTreeMap<Key, Arc<Value>>,
    /// uid → manager → the status that it has applied last.
    applied: HashMap<String, BTreeMap<String, Value>>,
    log: Vec<Logged>,
    /// The version of the last change that is no longer in the log.
    forgotten: Option<u64>,
    changes: Vec<Change>,
    pub(super) tokens: Tokens,
    unsupported: Vec<String>,
    requests: u64,
    /// The last requests and what became of them.
    trace: VecDeque<String>,
    admission: Option<Admission>,
    /// The latest lists that have further pages.
    unlisted: VecDeque<Unlisted>,
    /// Counts those.
    lists: u64,
    /// Plural → schema, of the kinds whose definitions are stored.
    schemas: BTreeMap<String, Schema>,
    /// Of the request that is being answered.
    manner: Manner,
    /// Counts the backups that were restored. A watch ends with the first one after its start.
    pub(super) restored: u64,
    /// No request is answered before.
    pub(super) away_until: tokio::time::Instant,
}

/// What was stored at some moment, as a backup of etcd has it.
#[derive(Clone)]
pub struct Backup {
    version: u64,
    objects: BTreeMap<Key, Arc<Value>>,
    applied: HashMap<String, BTreeMap<String, Value>>,
}

/// What a list has not shown yet, all as it was when the list began.
#[derive(Clone)]
struct Unlisted {
    /// Value of `continue`.
    token: String,
    version: u64,
    items: Vec<Value>,
}

/// Content type of server-side apply.
const APPLY: &str = "application/apply-patch+yaml";

/// How many lists may be continued.
const MAX_UNLISTED: usize = 64;

fn set_continue(metadata: &mut Value, token: &str) {
    if let Some(fields) = metadata.as_object_mut() {
        fields.insert("continue".to_owned(), json!(token));
    }
}

/// Changes an object on its way into the storage, as mutating admission does.
pub type Admission = fn(&mut Value);

pub(super) enum Answer {
    Object(u16, Value),
    Watch,
}

impl State {
    pub(super) fn new(clock: Clock) -> Self {
        Self {
            clock,
            version: 1,
            uids: 0,
            habits: ALONE,
            objects: BTreeMap::new(),
            applied: HashMap::new(),
            log: Vec::new(),
            forgotten: None,
            changes: Vec::new(),
            tokens: Tokens::default(),
            unsupported: Vec::new(),
            requests: 0,
            trace: VecDeque::new(),
            admission: None,
            unlisted: VecDeque::new(),
            lists: 0,
            schemas: BTreeMap::new(),
            manner: Manner::default(),
            restored: 0,
            away_until: tokio::time::Instant::now(),
        }
    }

    /// Everything that is stored.
    #[must_use]
    pub fn backup(&self) -> Backup {
        Backup {
            version: self.version,
            objects: self.objects.clone(),
            applied: self.applied.clone(),
        }
    }

    pub(super) fn restore(&mut self, backup: Backup, away: Duration) {
        self.remark("a backup is restored");
        (self.version, self.objects, self.applied) = (backup.version, backup.objects, backup.applied);
        // A watch from a version that is not reached yet is accepted, and one from an earlier version is too
        // old.
        self.forgotten = Some(self.version);
        self.log.clear();
        self.unlisted.clear();
        self.restored += 1;
        self.away_until = tokio::time::Instant::now() + away;
    }

    /// From now on it is the server with this number of many in a process: it remembers little, and no other one
    /// gives an object the same uid.
    pub fn set_number(&mut self, number: u32) {
        self.habits = OF_MANY;
        self.uids = u64::from(number) << 32;
    }

    /// The time between two bookmarks of a watch.
    pub(super) fn bookmarks(&self) -> Option<Duration> {
        self.habits.bookmarks
    }

    /// From now on each object that is created or replaced passes this.
    pub fn set_admission(&mut self, admission: Admission) {
        self.admission = Some(admission);
    }

    fn admit(&self, kind: &Kind, object: &mut Value) {
        if let Some(admission) = self.admission {
            admission(object);
        }
        normalize(kind, object);
    }

    /// From now on, objects of this kind have the schema of this definition.
    fn define(&mut self, definition: &Value) {
        let plural = definition.pointer("/spec/names/plural").and_then(Value::as_str);
        if let (Some(plural), Some(schema)) = (plural, Schema::of(definition)) {
            self.schemas.insert(plural.to_owned(), schema);
        }
    }

    /// Gives a custom object the form of its schema. What is wrong in `old` already is no mistake of this
    /// write: a feature of CRDs called ratcheting,
    /// <https://github.com/kubernetes/enhancements/tree/master/keps/sig-api-machinery/4008-crd-ratcheting>.
    fn conform(&self, kind: &Kind, old: Option<&Value>, object: &mut Value) -> Result<(), Failure> {
        let Some(schema) = self.schemas.get(kind.plural) else {
            return Ok(());
        };
        let mut mistakes = schema.conform(object);
        if self.manner.is_strict && !mistakes.unknown.is_empty() {
            let fields = mistakes
                .unknown
                .iter()
                .map(|field| format!("unknown field {field:?}"));
            let fields: Vec<String> = fields.collect();
            let message = format!("strict decoding error: {}", fields.join(", "));
            return Err(if self.manner.is_patch {
                Failure::invalid(message)
            } else {
                Failure::new(400, "BadRequest", message)
            });
        }
        if !mistakes.causes.is_empty() {
            let before = old.map(|old| schema.conform(&mut old.clone()).causes);
            let before = before.unwrap_or_default();
            mistakes.causes.retain(|cause| !before.contains(cause));
        }
        if mistakes.causes.is_empty() {
            return Ok(());
        }
        let name = text(object, "name");
        let (message, causes) = schema.refusal(name, &mistakes.causes);
        Err(Failure {
            causes,
            ..Failure::invalid(message).about_one(kind, name)
        })
    }

    /// The time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// resourceVersion of the last change.
    #[must_use]
    pub fn version(&self) -> u64 {
        self.version
    }

    /// Requests that were answered so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        self.requests
    }

    /// The last requests, of whom, and what became of them, for people.
    pub fn trace(&self) -> impl Iterator<Item = &str> {
        self.trace.iter().map(String::as_str)
    }

    /// Notes something for [`Self::trace`].
    pub fn remark(&mut self, what: &str) {
        if self.habits.traced == 0 {
            return;
        }
        if self.trace.len() == self.habits.traced {
            self.trace.pop_front();
        }
        let line = format!("{} v{} {what}", self.now(), self.version);
        self.trace.push_back(line);
    }

    pub(super) fn unsupported(&self) -> &[String] {
        &self.unsupported
    }

    pub(super) fn take_changes(&mut self) -> Vec<Change> {
        std::mem::take(&mut self.changes)
    }

    /// The object of this kind (plural), namespace and name.
    #[must_use]
    pub fn object(&self, plural: &str, namespace: &str, name: &str) -> Option<&Value> {
        let key = (kinds::plural(plural)?, namespace.to_owned(), name.to_owned());
        self.objects.get(&key).map(|object| &**object)
    }

    /// All objects of a kind (plural).
    pub fn all(&self, plural: &str) -> impl Iterator<Item = &Value> + use<'_> {
        let plural = kinds::plural(plural).unwrap_or_default();
        let from = (plural, String::new(), String::new());
        self.objects
            .range(from..)
            .take_while(move |((kind, ..), _)| *kind == plural)
            .map(|(_, object)| &**object)
    }

    pub(super) fn log_after(&self, version: u64) -> &[Logged] {
        let from = self.log.partition_point(|logged| logged.version <= version);
        self.log.get(from..).unwrap_or_default()
    }

    /// Answers a request of `user`.
    pub(super) fn handle(&mut self, user: &User, request: &Request) -> Result<Answer, Failure> {
        self.manner = Manner {
            is_dry_run: request.query("dryRun") == "All",
            is_strict: request.query("fieldValidation") == "Strict",
            is_patch: request.verb == Verb::Patch,
        };
        let answer = self.answer(user, request);
        self.manner = Manner::default();
        answer
    }

    fn answer(&mut self, user: &User, request: &Request) -> Result<Answer, Failure> {
        self.requests += 1;
        let Target::Objects {
            kind,
            namespace,
            name,
            subresource,
        } = &request.target
        else {
            return self.review(user, request);
        };
        // A list of one name is asked for as that name.
        let named = request
            .query("fieldSelector")
            .strip_prefix("metadata.name=")
            .unwrap_or(name);
        if !authorizer::allows(
            self,
            user,
            request.verb.name(),
            kind.group,
            &request.target.resource(),
            namespace,
            named,
        ) {
            let message = format!(
                "{user} cannot {} {} in namespace {namespace:?}",
                request.verb.name(),
                request.target.resource()
            );
            return Err(Failure::new(403, "Forbidden", message).about(kind, name));
        }
        let found = match (request.verb, subresource.as_str()) {
            (Verb::Get, "") => (200, (**self.read(kind, namespace, name)?).clone()),
            (Verb::List, "") => (200, self.list(kind, namespace, request)?),
            (Verb::Watch, "") => return Ok(Answer::Watch),
            (Verb::Create, "") if name.is_empty() => {
                let mut object = body(request)?;
                set(
                    &mut object,
                    "namespace",
                    (!namespace.is_empty()).then(|| json!(namespace)),
                );
                set_type(&mut object, kind);
                (201, self.create(object)?)
            }
            (Verb::Create, "token") if kind.plural == "serviceaccounts" => {
                (201, authorizer::issue(self, namespace, name, &body(request)?)?)
            }
            (Verb::Update, "") => (200, self.update(kind, namespace, name, body(request)?)?),
            (Verb::Patch, "") if request.content_type != APPLY => {
                let old = self.read(kind, namespace, name)?.clone();
                let patched = patch::patched(kind, &old, &request.content_type, body(request)?)?;
                (200, self.replace(kind, &old, patched)?)
            }
            (Verb::Patch, "") => {
                let what =
                    "server-side apply of more than a status; kubectl apply without --server-side works";
                return Err(Failure::unsupported(what));
            }
            (Verb::Patch, "status") if kind.custom && request.content_type == APPLY => {
                if request.query("force") != "true" {
                    return Err(Failure::unsupported("server-side apply without force"));
                }
                let manager = request.query("fieldManager").to_owned();
                (
                    200,
                    self.apply_status(kind, namespace, name, &manager, &body(request)?)?,
                )
            }
            (Verb::Patch, "status" | "approval")
                if (kind.custom || kind.plural == "certificatesigningrequests")
                    && request.content_type == "application/merge-patch+json" =>
            {
                (200, self.merge_status(kind, namespace, name, &body(request)?)?)
            }
            (Verb::Delete, "") => {
                let options = if request.body.is_empty() {
                    Value::Null
                } else {
                    body(request)?
                };
                (200, self.delete_if(kind, namespace, name, &options)?)
            }
            (verb, subresource) => {
                let what = format!("{verb:?} {}/{subresource} {}", kind.plural, request.content_type);
                return Err(Failure::unsupported(what));
            }
        };
        let (code, object) = found;
        let object = if request.metadata_only {
            metadata_only(&object)
        } else {
            object
        };
        Ok(Answer::Object(code, object))
    }

    /// Notes what could not be answered.
    pub(super) fn note(&mut self, failure: &Failure, what: &str) {
        if failure.code == 501 {
            self.unsupported.push(format!("{what}: {}", failure.message));
        }
    }

    fn review(&mut self, user: &User, request: &Request) -> Result<Answer, Failure> {
        if *user == User::Nobody {
            return Err(Failure::new(
                403,
                "Forbidden",
                "system:anonymous can't ask what it may do",
            ));
        }
        let mut review = body(request)?;
        let asked_for = match review.pointer("/spec/user").and_then(Value::as_str) {
            None => user.clone(),
            Some(name) => User::named(name).ok_or_else(|| Failure::unsupported(name))?,
        };
        let attributes = review
            .pointer("/spec/resourceAttributes")
            .cloned()
            .unwrap_or_default();
        let of = |key: &str| attributes.get(key).and_then(Value::as_str).unwrap_or_default();
        let resource = match of("subresource") {
            "" => of("resource").to_owned(),
            subresource => format!("{}/{subresource}", of("resource")),
        };
        let allowed = authorizer::allows(
            self,
            &asked_for,
            of("verb"),
            of("group"),
            &resource,
            of("namespace"),
            of("name"),
        );
        if let Value::Object(review) = &mut review {
            review.insert("status".to_owned(), json!({"allowed": allowed}));
        }
        Ok(Answer::Object(201, review))
    }

    fn stored(&self, kind: &Kind, namespace: &str, name: &str) -> Option<&Arc<Value>> {
        self.objects
            .get(&(kind.plural, namespace.to_owned(), name.to_owned()))
    }

    fn read(&self, kind: &Kind, namespace: &str, name: &str) -> Result<&Arc<Value>, Failure> {
        self.stored(kind, namespace, name).ok_or_else(|| {
            Failure::new(404, "NotFound", format!("{} {name:?} not found", kind.plural)).about(kind, name)
        })
    }

    fn list(&mut self, kind: &'static Kind, namespace: &str, request: &Request) -> Result<Value, Failure> {
        // The newest is good enough for who asks for any.
        if !["", "0"].contains(&request.query("resourceVersion")) {
            return Err(Failure::unsupported("a list from a cache"));
        }
        let token = request.query("continue");
        let mut list = if token.is_empty() {
            let filter = Filter::of(kind, namespace, request)?;
            let items = self.all(kind.plural).filter(|object| filter.fits(object));
            Unlisted {
                token: String::new(),
                version: self.version,
                items: items.cloned().collect(),
            }
        } else {
            let found = self.unlisted.iter().position(|list| list.token == token);
            found
                .and_then(|at| self.unlisted.get(at))
                .cloned()
                .ok_or_else(|| {
                    Failure::new(
                        410,
                        "Expired",
                        "the provided continue parameter is too old".to_owned(),
                    )
                })?
        };
        let limit = request.query("limit").parse().unwrap_or(0);
        let page: Vec<Value> = match limit {
            0 => list.items.drain(..).collect(),
            limit => list.items.drain(..limit.min(list.items.len())).collect(),
        };
        let mut metadata = json!({"resourceVersion": list.version.to_string()});
        if !list.items.is_empty() {
            self.lists += 1;
            list.token = self.lists.to_string();
            set_continue(&mut metadata, &list.token);
            self.unlisted.push_back(list);
            if self.unlisted.len() > MAX_UNLISTED {
                self.unlisted.pop_front();
            }
        }
        Ok(
            json!({"apiVersion": kind.api_version(), "kind": format!("{}List", kind.kind), "metadata": metadata, "items": page}),
        )
    }

    /// Creates an object.
    ///
    /// # Errors
    /// Those of a real server.
    pub fn create(&mut self, mut object: Value) -> Result<Value, Failure> {
        let of = |key: &str| {
            object
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        let kind = kinds::by_name(&of("apiVersion"), &of("kind"))
            .ok_or_else(|| Failure::unsupported(format!("kind {}", of("kind"))))?;
        if text(&object, "name").is_empty() {
            let prefix = text(&object, "generateName").to_owned();
            if prefix.is_empty() {
                return Err(Failure::invalid("name or generateName is required"));
            }
            let name = json!(format!("{prefix}{:05}", self.uids));
            set(&mut object, "name", Some(name));
        }
        let (namespace, name) = (
            text(&object, "namespace").to_owned(),
            text(&object, "name").to_owned(),
        );
        if kind.namespaced && self.object("namespaces", "", &namespace).is_none() {
            let namespaces = kinds::by_plural("", "namespaces");
            let missing = Failure::new(404, "NotFound", format!("namespaces {namespace:?} not found"));
            return Err(namespaces.map_or(missing.clone(), |kind| missing.about(kind, &namespace)));
        }
        if self.stored(kind, &namespace, &name).is_some() {
            let message = format!("{} {name:?} already exists", kind.plural);
            return Err(Failure::new(409, "AlreadyExists", message).about(kind, &name));
        }
        if !text(&object, "resourceVersion").is_empty() {
            return Err(Failure::new(
                500,
                "InternalError",
                "resourceVersion should not be set on objects to be created",
            ));
        }
        self.admit(kind, &mut object);
        if kind.custom {
            remove(&mut object, "status");
            set(&mut object, "generation", Some(json!(1)));
        }
        self.conform(kind, None, &mut object)?;
        self.uids += 1;
        let uid = format!("00000000-0000-4000-8000-{:012x}", self.uids);
        set(&mut object, "uid", Some(json!(uid)));
        let seconds = Timestamp::from_second(self.now().as_second()).unwrap_or_default();
        set(&mut object, "creationTimestamp", Some(json!(seconds)));
        Ok(self.store(kind, None, object))
    }

    /// Merges into an object, or into its status, what someone wants there.
    ///
    /// # Errors
    /// Those of a real server.
    pub fn patch(
        &mut self,
        plural: &str,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Value, Failure> {
        let kind = kinds::only(plural).ok_or_else(|| Failure::unsupported(plural))?;
        let patched = self.merge_patch(kind, namespace, name, patch)?;
        let (Some(status), true) = (patch.get("status"), kind.custom) else {
            return Ok(patched);
        };
        let old = self.read(kind, namespace, name)?.clone();
        let mut object = (*old).clone();
        json_patch::merge(&mut object, &json!({"status": status}));
        Ok(self.store(kind, Some(old), object))
    }

    /// What is not the status is not looked at, except for the resourceVersion.
    fn merge_status(
        &mut self,
        kind: &'static Kind,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Value, Failure> {
        let old = self.read(kind, namespace, name)?.clone();
        fenced(&old, "", text(patch, "resourceVersion")).map_err(|failure| failure.about(kind, name))?;
        let mut object = (*old).clone();
        json_patch::merge(&mut object, &json!({"status": patch.get("status")}));
        self.conform(kind, Some(&old), &mut object)?;
        Ok(self.store(kind, Some(old), object))
    }

    /// Deletes an object.
    ///
    /// # Errors
    /// Those of a real server.
    pub fn delete(&mut self, plural: &str, namespace: &str, name: &str) -> Result<(), Failure> {
        let kind = kinds::only(plural).ok_or_else(|| Failure::unsupported(plural))?;
        self.delete_if(kind, namespace, name, &Value::Null).map(drop)
    }

    fn update(
        &mut self,
        kind: &'static Kind,
        namespace: &str,
        name: &str,
        mut object: Value,
    ) -> Result<Value, Failure> {
        let old = self.read(kind, namespace, name)?.clone();
        set_type(&mut object, kind);
        if kind.custom && text(&object, "resourceVersion").is_empty() {
            return Err(
                Failure::invalid("metadata.resourceVersion: must be specified for an update")
                    .about(kind, name),
            );
        }
        self.replace(kind, &old, object)
    }

    fn merge_patch(
        &mut self,
        kind: &'static Kind,
        namespace: &str,
        name: &str,
        patch: &Value,
    ) -> Result<Value, Failure> {
        let old = self.read(kind, namespace, name)?.clone();
        let mut object = (*old).clone();
        json_patch::merge(&mut object, patch);
        self.replace(kind, &old, object)
    }

    /// Everything that a write to an object has to pass.
    fn replace(
        &mut self,
        kind: &'static Kind,
        old: &Arc<Value>,
        mut object: Value,
    ) -> Result<Value, Failure> {
        let name = text(old, "name").to_owned();
        fenced(old, text(&object, "uid"), text(&object, "resourceVersion"))
            .map_err(|failure| failure.about(kind, &name))?;
        self.admit(kind, &mut object);
        for key in [
            "uid",
            "creationTimestamp",
            "namespace",
            "generation",
            "resourceVersion",
            "name",
        ] {
            set(
                &mut object,
                key,
                old.pointer(&format!("/metadata/{key}")).cloned(),
            );
        }
        if kind.custom {
            match old.get("status") {
                Some(status) => insert(&mut object, "status", status.clone()),
                None => remove(&mut object, "status"),
            }
        }
        self.conform(kind, Some(old), &mut object)?;
        if kind.custom && object.get("spec") != old.get("spec") {
            let generation = old
                .pointer("/metadata/generation")
                .and_then(Value::as_i64)
                .unwrap_or(0)
                + 1;
            set(&mut object, "generation", Some(json!(generation)));
        }
        if let Some(rule) = broken_rule(kind, old, &object) {
            return Err(Failure::invalid(rule).about_one(kind, &name));
        }
        Ok(self.store(kind, Some(old.clone()), object))
    }

    fn apply_status(
        &mut self,
        kind: &'static Kind,
        namespace: &str,
        name: &str,
        manager: &str,
        new: &Value,
    ) -> Result<Value, Failure> {
        let old = self.read(kind, namespace, name)?.clone();
        // The uid in it is not looked at.
        fenced(&old, "", text(new, "resourceVersion")).map_err(|failure| failure.about(kind, name))?;
        let uid = text(&old, "uid").to_owned();
        let sent = new.get("status").cloned().unwrap_or_else(|| json!({}));
        let known = self.applied.get(&uid);
        let of_others = |(other, sent)| (other != manager).then_some(sent);
        let others: Vec<&Value> = known.into_iter().flatten().filter_map(of_others).collect();
        let mut status = old.get("status").cloned().unwrap_or_else(|| json!({}));
        let last = known.and_then(|known| known.get(manager));
        patch::apply(&mut status, last, &others, &sent);
        let mut object = (*old).clone();
        insert(&mut object, "status", status);
        if let Some(admission) = self.admission {
            admission(&mut object);
        }
        self.conform(kind, Some(&old), &mut object)?;
        let object = self.store(kind, Some(old), object);
        if !self.manner.is_dry_run {
            self.applied
                .entry(uid)
                .or_default()
                .insert(manager.to_owned(), sent);
        }
        Ok(object)
    }

    fn delete_if(
        &mut self,
        kind: &'static Kind,
        namespace: &str,
        name: &str,
        options: &Value,
    ) -> Result<Value, Failure> {
        let old = self.read(kind, namespace, name)?.clone();
        let condition = |key: &str| {
            options
                .pointer(&format!("/preconditions/{key}"))
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        fenced(&old, condition("uid"), condition("resourceVersion"))
            .map_err(|failure| failure.about_one(kind, name))?;
        let deleted = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": {"name": name, "kind": kind.plural, "uid": text(&old, "uid")}});
        if self.manner.is_dry_run {
            return Ok(deleted);
        }
        self.applied.remove(text(&old, "uid"));
        self.objects
            .remove(&(kind.plural, namespace.to_owned(), name.to_owned()));
        self.version += 1;
        let mut gone = (*old).clone();
        set(
            &mut gone,
            "resourceVersion",
            Some(json!(self.version.to_string())),
        );
        self.changes.push(Change {
            at: self.now(),
            what: What::Deleted,
            object: gone.clone(),
        });
        let (version, at) = (self.version, tokio::time::Instant::now());
        self.log(Logged {
            version,
            kind: kind.plural,
            at,
            old: Some(Arc::new(gone)),
            new: None,
        });
        Ok(deleted)
    }

    fn store(&mut self, kind: &'static Kind, old: Option<Arc<Value>>, mut object: Value) -> Value {
        let is_same = old.as_deref() == Some(&object);
        if self.manner.is_dry_run || is_same {
            return object;
        }
        if kind.plural == kinds::DEFINITIONS {
            self.define(&object);
        }
        if let Some(old) = &old
            && let Some(managers) = self.applied.get_mut(text(&object, "uid"))
        {
            let part = |object: &Value| object.get("status").cloned().unwrap_or_default();
            let (old, new) = (part(old), part(&object));
            managers
                .values_mut()
                .for_each(|sent| patch::disown(sent, &old, &new));
        }
        self.version += 1;
        set(
            &mut object,
            "resourceVersion",
            Some(json!(self.version.to_string())),
        );
        let key = (
            kind.plural,
            text(&object, "namespace").to_owned(),
            text(&object, "name").to_owned(),
        );
        let what = if old.is_some() {
            What::Modified
        } else {
            What::Added
        };
        self.changes.push(Change {
            at: self.now(),
            what,
            object: object.clone(),
        });
        let stored = Arc::new(object.clone());
        self.objects.insert(key, stored.clone());
        let (version, at) = (self.version, tokio::time::Instant::now());
        self.log(Logged {
            version,
            kind: kind.plural,
            at,
            old,
            new: Some(stored),
        });
        object
    }

    /// Logs a change for watches, and forgets old ones.
    fn log(&mut self, change: Logged) {
        let most = self.habits.logged;
        if self.log.len() >= most {
            self.forgotten = self.log.drain(..most / 2).map(|old| old.version).max();
        }
        self.log.push(change);
    }

    /// Whether changes since this version are forgotten.
    pub(super) fn has_forgotten(&self, version: u64) -> bool {
        self.forgotten.is_some_and(|forgotten| version < forgotten)
    }
}

/// Whether an object is the one that was meant: 409 otherwise.
fn fenced(object: &Value, uid: &str, version: &str) -> Result<(), Failure> {
    for (what, wanted, has) in [
        ("UID", uid, text(object, "uid")),
        ("resourceVersion", version, text(object, "resourceVersion")),
    ] {
        if !wanted.is_empty() && wanted != has {
            let message = format!(
                "Precondition failed: {what} in precondition: {wanted}, {what} in object meta: {has}"
            );
            return Err(Failure::conflict(message));
        }
    }
    Ok(())
}

/// What a list or watch shows.
#[derive(Clone)]
pub(super) struct Filter {
    namespace: String,
    labels: Selector,
    fields: Selector,
}

impl Filter {
    pub fn of(kind: &Kind, namespace: &str, request: &Request) -> Result<Self, Failure> {
        let parse = |key: &str| {
            Selector::parse(request.query(key))
                .ok_or_else(|| Failure::unsupported(format!("{key} {}", request.query(key))))
        };
        let (labels, fields) = (parse("labelSelector")?, parse("fieldSelector")?);
        let further: &[&str] = match kind.plural {
            "secrets" => &["type"],
            "certificatesigningrequests" => &["spec.signerName"],
            "events" => &[
                "involvedObject.kind",
                "involvedObject.namespace",
                "involvedObject.name",
                "involvedObject.uid",
            ],
            _ => &[],
        };
        if !fields.only_about(&[&["metadata.name", "metadata.namespace"], further].concat()) {
            return Err(Failure::unsupported(format!("field selector on {}", kind.plural)));
        }
        Ok(Self {
            namespace: namespace.to_owned(),
            labels,
            fields,
        })
    }

    pub fn fits(&self, object: &Value) -> bool {
        let labels = object.pointer("/metadata/labels");
        (self.namespace.is_empty() || text(object, "namespace") == self.namespace)
            && self.labels.fits(|key| labels?.get(key)?.as_str())
            && self.fields.fits(|key| {
                // Events are stored in the version of events.k8s.io.
                let key = key.replace("involvedObject.", "regarding.");
                let found = object.pointer(&format!("/{}", key.replace('.', "/")));
                Some(found.and_then(Value::as_str).unwrap_or_default())
            })
    }
}

/// Rules about what may change.
pub(super) fn broken_rule(kind: &Kind, old: &Value, new: &Value) -> Option<&'static str> {
    let differs = |pointer: &str| old.pointer(pointer) != new.pointer(pointer);
    match kind.plural {
        "secrets" if differs("/type") => Some("type: field is immutable"),
        "secrets"
            if old.get("immutable") == Some(&json!(true)) && (differs("/immutable") || differs("/data")) =>
        {
            Some("data: field is immutable when `immutable` is set")
        }
        "rolebindings" | "clusterrolebindings" if differs("/roleRef") => {
            Some("roleRef: cannot change roleRef")
        }
        "operatingsystemprofiles" if differs("/spec") && !differs("/spec/version") => {
            old.pointer("/spec/version")?;
            Some(
                "spec: a profile's spec changes only together with spec.version: give the changed profile a new version",
            )
        }
        "operatingsystemconfigs" if old.pointer("/spec/poolRef").is_some() && differs("/spec/poolRef") => {
            Some("an OperatingSystemConfig belongs to one pool and cannot move")
        }
        _ => None,
    }
}

/// Forms that the server gives to what is sent.
fn normalize(kind: &Kind, object: &mut Value) {
    set(object, "managedFields", None);
    for key in ["labels", "annotations"] {
        let is_empty = |map: &Value| map.is_null() || map.as_object().is_some_and(Map::is_empty);
        if object.pointer(&format!("/metadata/{key}")).is_some_and(is_empty) {
            set(object, key, None);
        }
    }
    if kind.plural == "secrets" {
        let texts = object
            .as_object_mut()
            .and_then(|object| object.remove("stringData"));
        for (key, value) in texts.as_ref().and_then(Value::as_object).into_iter().flatten() {
            let encoded = json!({"data": {key: STANDARD.encode(value.as_str().unwrap_or_default())}});
            json_patch::merge(object, &encoded);
        }
        if object.get("type").is_none() {
            insert(object, "type", json!("Opaque"));
        }
    }
}

fn metadata_only(object: &Value) -> Value {
    json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": object.get("metadata")})
}

fn body(request: &Request) -> Result<Value, Failure> {
    serde_json::from_slice(&request.body)
        .map_err(|error| Failure::new(400, "BadRequest", format!("the body is not JSON: {error}")))
}

fn set_type(object: &mut Value, kind: &Kind) {
    insert(object, "apiVersion", json!(kind.api_version()));
    insert(object, "kind", json!(kind.kind));
}

fn insert(object: &mut Value, key: &str, value: Value) {
    if let Value::Object(object) = object {
        object.insert(key.to_owned(), value);
    }
}

fn remove(object: &mut Value, key: &str) {
    if let Value::Object(object) = object {
        object.remove(key);
    }
}

/// Sets or removes a field of the metadata.
fn set(object: &mut Value, key: &str, value: Option<Value>) {
    if object.get("metadata").is_none() {
        insert(object, "metadata", json!({}));
    }
    let Some(Value::Object(metadata)) = object.get_mut("metadata") else {
        return;
    };
    match value {
        Some(value) => {
            metadata.insert(key.to_owned(), value);
        }
        None => {
            metadata.remove(key);
        }
    }
}

/// A text of the metadata; empty where there is none.
pub(super) fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object
        .get("metadata")
        .and_then(|metadata| metadata.get(key))
        .and_then(Value::as_str)
        .unwrap_or_default()
}
