//! Authenticates and authorizes requests: tokens bound to objects, and RBAC.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::state::{Failure, State, text};

/// Who asks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum User {
    /// May do everything.
    Admin,
    /// May ask who it is: requests as it are made with tokens.
    Nobody,
    ServiceAccount {
        namespace: String,
        name: String,
    },
}

impl User {
    /// The ServiceAccount with this name of a user.
    pub(super) fn named(user: &str) -> Option<Self> {
        let (namespace, name) = user.strip_prefix("system:serviceaccount:")?.split_once(':')?;
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Some(Self::ServiceAccount { namespace, name })
    }
}

impl fmt::Display for User {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Admin => "admin",
            Self::Nobody => "nobody",
            Self::ServiceAccount { name, .. } => name,
        })
    }
}

/// Tokens that were issued.
#[derive(Default)]
pub(super) struct Tokens {
    issued: BTreeMap<String, Token>,
    /// Longest life that is granted.
    longest: Option<SignedDuration>,
    /// In each token, so that it can't be guessed.
    salt: String,
}

struct Token {
    namespace: String,
    account: (String, String),
    secret: Option<(String, String)>,
    expires: Timestamp,
}

impl State {
    /// From now on no token lives longer than this.
    pub fn shorten_tokens(&mut self, longest: SignedDuration) {
        self.tokens.longest = Some(longest);
    }

    /// From now on this is part of each token, which can then not be guessed.
    pub fn salt_tokens(&mut self, salt: String) {
        self.tokens.salt = salt;
    }

    /// Whose token it is, if it is good.
    #[must_use]
    pub fn owner(&self, token: &str) -> Option<User> {
        let token = self.tokens.issued.get(token)?;
        let stands = |plural: &str, (name, uid): &(String, String)| {
            self.object(plural, &token.namespace, name)
                .is_some_and(|object| text(object, "uid") == uid)
        };
        let good = self.now() < token.expires
            && stands("serviceaccounts", &token.account)
            && token
                .secret
                .as_ref()
                .is_none_or(|secret| stands("secrets", secret));
        let (namespace, name) = (token.namespace.clone(), token.account.0.clone());
        good.then_some(User::ServiceAccount { namespace, name })
    }

    /// Whether the owner of this token may do this; never with a token that is not good.
    #[must_use]
    pub fn allows(
        &self,
        token: &str,
        verb: &str,
        group: &str,
        resource: &str,
        namespace: &str,
        name: &str,
    ) -> bool {
        self.owner(token)
            .is_some_and(|user| allows(self, &user, verb, group, resource, namespace, name))
    }
}

/// Issues a token as TokenRequest does.
pub(super) fn issue(
    state: &mut State,
    namespace: &str,
    account: &str,
    request: &Value,
) -> Result<Value, Failure> {
    let not_found = |what: &str, name: &str| Failure {
        about: (what.to_owned(), name.to_owned()),
        ..Failure::new(404, "NotFound", format!("{what} {name:?} not found"))
    };
    let found = state
        .object("serviceaccounts", namespace, account)
        .map(|object| text(object, "uid").to_owned());
    let uid = found.ok_or_else(|| not_found("serviceaccounts", account))?;
    let spec = |key: &str| request.pointer(&format!("/spec/{key}"));
    if spec("audiences")
        .and_then(Value::as_array)
        .is_some_and(|audiences| !audiences.is_empty())
    {
        return Err(Failure::unsupported("audiences"));
    }
    let asked = SignedDuration::from_secs(spec("expirationSeconds").and_then(Value::as_i64).unwrap_or(3600));
    if asked < SignedDuration::from_mins(10) {
        let message = "expirationSeconds: may not specify a duration less than 10 minutes";
        let about = ("TokenRequest".to_owned(), String::new());
        return Err(Failure {
            about,
            ..Failure::new(422, "Invalid", message)
        });
    }
    let life = state.tokens.longest.map_or(asked, |longest| asked.min(longest));
    let mut secret = None;
    if let Some(bound) = spec("boundObjectRef") {
        let of = |key: &str| {
            bound
                .get(key)
                .and_then(Value::as_str)
                .unwrap_or_default()
                .to_owned()
        };
        if of("kind") != "Secret" {
            return Err(Failure::unsupported("a token bound to anything but a Secret"));
        }
        let (name, wanted) = (of("name"), of("uid"));
        let found = state
            .object("secrets", namespace, &name)
            .ok_or_else(|| not_found("secrets", &name))?;
        if text(found, "uid") != wanted {
            let message = "the UID in the bound object reference does not match the UID in record";
            return Err(Failure {
                about: ("Secret".to_owned(), name),
                ..Failure::conflict(message)
            });
        }
        secret = Some((name, wanted));
    }
    let (now, number) = (state.now(), state.tokens.issued.len());
    let expires = now.saturating_add(life).unwrap_or(Timestamp::MAX);
    let bound = secret
        .as_ref()
        .map(|(name, uid)| json!({"name": name, "uid": uid}));
    let of =
        json!({"namespace": namespace, "serviceaccount": {"name": account, "uid": uid}, "secret": bound});
    let payload = json!({"exp": expires.as_second(), "iat": now.as_second(), "jti": number.to_string(),
        "kubernetes.io": of, "sub": format!("system:serviceaccount:{namespace}:{account}")});
    let salt = &state.tokens.salt;
    let token = format!(
        "e30.{}.{number}{salt}",
        URL_SAFE_NO_PAD.encode(payload.to_string())
    );
    let mut answer = request.clone();
    // The server rounds to seconds in both places.
    let expires = Timestamp::from_second(expires.as_second()).unwrap_or(expires);
    let granted = json!({"spec": {"expirationSeconds": life.as_secs()},
        "status": {"token": token, "expirationTimestamp": expires}});
    json_patch::merge(&mut answer, &granted);
    let account = (account.to_owned(), uid);
    let token_of = Token {
        namespace: namespace.to_owned(),
        account,
        secret,
        expires,
    };
    state.tokens.issued.insert(token, token_of);
    Ok(answer)
}

/// Whether RBAC lets `user` do this; `resource` is `secrets` or `serviceaccounts/token`.
pub(super) fn allows(
    state: &State,
    user: &User,
    verb: &str,
    group: &str,
    resource: &str,
    namespace: &str,
    name: &str,
) -> bool {
    let User::ServiceAccount {
        namespace: home,
        name: account,
    } = user
    else {
        return *user == User::Admin;
    };
    // The API server authorizes a request for a Namespace in the namespace of that name.
    let namespace = if (group, resource) == ("", "namespaces") {
        name
    } else {
        namespace
    };
    let groups = [
        "system:authenticated".to_owned(),
        "system:serviceaccounts".to_owned(),
        format!("system:serviceaccounts:{home}"),
    ];
    let is_user = |subject: &Value| {
        let is = |key: &str, wanted: &str| subject.get(key).and_then(Value::as_str) == Some(wanted);
        (is("kind", "ServiceAccount") && is("namespace", home) && is("name", account))
            || (is("kind", "Group") && groups.iter().any(|group| is("name", group)))
    };
    let binds = |binding: &Value| {
        binding
            .get("subjects")
            .and_then(Value::as_array)
            .is_some_and(|subjects| subjects.iter().any(is_user))
    };
    let rule_allows = |rule: &Value| {
        let has = |key: &str, wanted: &str| {
            let listed = rule.get(key).and_then(Value::as_array);
            listed.is_some_and(|listed| listed.iter().any(|item| item == wanted || item == "*"))
        };
        let names = rule
            .get("resourceNames")
            .and_then(Value::as_array)
            .filter(|names| !names.is_empty());
        has("verbs", verb)
            && has("apiGroups", group)
            && has("resources", resource)
            && names.is_none_or(|names| names.iter().any(|listed| listed == name))
    };
    let role_allows = |binding: &Value, home: &str| {
        let of = |key: &str| {
            binding
                .pointer(&format!("/roleRef/{key}"))
                .and_then(Value::as_str)
                .unwrap_or_default()
        };
        let role = match of("kind") {
            "Role" => state.object("roles", home, of("name")),
            _ => state.object("clusterroles", "", of("name")),
        };
        let rules = role.and_then(|role| role.get("rules")).and_then(Value::as_array);
        rules.is_some_and(|rules| rules.iter().any(rule_allows))
    };
    state
        .all("clusterrolebindings")
        .any(|binding| binds(binding) && role_allows(binding, ""))
        || (!namespace.is_empty()
            && state.all("rolebindings").any(|binding| {
                text(binding, "namespace") == namespace && binds(binding) && role_allows(binding, namespace)
            }))
}
