//! The connection to the API server: every request timed, counted and bounded.

use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::task::{self, Poll};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use http::{Request, Response};
use kube::client::{Body, ClientBuilder};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use tower::{BoxError, Layer, Service};

use crate::Metrics;
use crate::args::CommonArgs;

/// A watch that shows nothing, not even a bookmark, for this long is dead.
const READ_TIMEOUT: Duration = Duration::from_secs(120);

/// Reads the configuration of the connection.
///
/// # Errors
/// A kubeconfig that is missing or not valid.
pub async fn config(args: &CommonArgs) -> anyhow::Result<Config> {
    let mut config = match &args.kubeconfig {
        Some(path) => from_file(path).await?,
        None => Config::infer()
            .await
            .context("no API server: give --kubeconfig, or run in a pod with a ServiceAccount")?,
    };
    config.connect_timeout = Some(args.request_timeout());
    config.read_timeout = Some(READ_TIMEOUT);
    Ok(config)
}

async fn from_file(path: &Path) -> anyhow::Result<Config> {
    let kubeconfig =
        Kubeconfig::read_from(path).with_context(|| format!("--kubeconfig {}", path.display()))?;
    let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await;
    config.with_context(|| format!("--kubeconfig {}", path.display()))
}

/// A client with that configuration.
///
/// # Errors
/// Certificates or keys that can't be read.
pub fn connect(config: Config, metrics: &Metrics, timeout: Duration) -> anyhow::Result<Client> {
    let builder =
        ClientBuilder::try_from(config).context("the connection to the API server can't be set up")?;
    Ok(builder.with_layer(&Observe { metrics: metrics.clone(), timeout }).build())
}

#[derive(Clone)]
struct Observe {
    metrics: Metrics,
    timeout: Duration,
}

impl<S> Layer<S> for Observe {
    type Service = Observed<S>;

    fn layer(&self, inner: S) -> Observed<S> {
        Observed { inner, observe: self.clone() }
    }
}

#[derive(Clone)]
struct Observed<S> {
    inner: S,
    observe: Observe,
}

impl<S, B> Service<Request<Body>> for Observed<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut task::Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (verb, resource) = classify(request.method(), request.uri());
        let (future, Observe { metrics, timeout }) = (self.inner.call(request), self.observe.clone());
        Box::pin(async move {
            let started = Instant::now();
            let answer = match tokio::time::timeout(timeout, future).await {
                Ok(answer) => answer.map_err(Into::into),
                Err(_) => Err(format!("the API server has not answered within {timeout:?}").into()),
            };
            let code = answer.as_ref().map_or(0, |response| response.status().as_u16());
            metrics.requested(verb, &resource, code, started.elapsed());
            answer
        })
    }
}

/// Verb and resource of a request, as RBAC names them: `/api/v1/namespaces/n/secrets/x` → `secrets`.
fn classify(method: &http::Method, uri: &http::Uri) -> (&'static str, String) {
    let mut segments = uri.path().split('/').filter(|segment| !segment.is_empty());
    match segments.next() {
        Some("api") => {
            segments.next();
        }
        Some("apis") => {
            segments.next();
            segments.next();
        }
        _ => return ("other", "other".to_owned()),
    }
    let mut rest: Vec<&str> = segments.collect();
    if rest.first() == Some(&"namespaces") && rest.len() > 2 {
        rest.drain(..2);
    }
    let resource = match (rest.first(), rest.get(2)) {
        (Some(resource), Some(subresource)) => format!("{resource}/{subresource}"),
        (Some(resource), None) => (*resource).to_owned(),
        _ => "other".to_owned(),
    };
    let watch = uri
        .query()
        .is_some_and(|query| query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1"));
    let verb = match method.as_str() {
        "GET" if watch => "watch",
        "GET" if rest.len() > 1 => "get",
        "GET" => "list",
        "POST" => "create",
        "PUT" => "update",
        "PATCH" => "patch",
        "DELETE" => "delete",
        _ => "other",
    };
    (verb, resource)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_classified_as_rbac_does_and_without_names() {
        for (method, uri, verb, resource) in [
            ("GET", "/api/v1/namespaces/n/secrets/x", "get", "secrets"),
            ("GET", "/api/v1/namespaces/n/secrets?limit=5", "list", "secrets"),
            ("GET", "/api/v1/secrets?watch=true&x=y", "watch", "secrets"),
            ("GET", "/api/v1/namespaces/n", "get", "namespaces"),
            ("POST", "/api/v1/namespaces/n/serviceaccounts/x/token", "create", "serviceaccounts/token"),
            ("PATCH", "/apis/g/v1/namespaces/n/things/x/status", "patch", "things/status"),
            ("GET", "/version", "other", "other"),
        ] {
            let got = classify(&method.parse().unwrap(), &uri.parse().unwrap());
            assert_eq!(got, (verb, resource.to_owned()), "{method} {uri}");
        }
    }
}
