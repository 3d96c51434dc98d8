//! A proxy for plain HTTP that demands a user name and a password.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::{Context, Result, ensure};
use http::header::{HOST, PROXY_AUTHENTICATE, PROXY_AUTHORIZATION};
use http::{HeaderName, HeaderValue};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::client::conn::http1;
use hyper::{Response, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

use super::registry::Login;
use super::{Answer, Asked, BoxError, Log, Request, Server, answer, serve_http};

/// What a client says to its proxy about their connection, in older clients.
const PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");

/// A running proxy. Dropping it ends it and its connections.
///
/// It forwards requests with an absolute URL, whose servers then see its address. It builds no tunnels, so HTTPS does not pass.
#[derive(Debug)]
pub struct Proxy {
    server: Server,
    log: Log,
}

impl Proxy {
    /// Forwards the requests of clients with this login.
    ///
    /// # Errors
    /// When `listen` can't be listened on.
    pub fn start(listen: SocketAddr, login: Login) -> Result<Self> {
        let (log, login) = (Log::default(), Arc::new(login));
        let serving = log.clone();
        let server = Server::start(&[listen], move |stream, client| {
            let (log, login) = (serving.clone(), login.clone());
            async move {
                serve_http(stream, client, &log, async |request| {
                    reply(request, client, &login).await
                })
                .await;
            }
        })?;
        Ok(Self { server, log })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.server.address
    }

    /// Every request so far. Paths are without the server.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.log.requests()
    }
}

async fn reply(request: Asked, client: IpAddr, login: &Login) -> Answer {
    if !login.is_given_by(&request, &PROXY_AUTHORIZATION) {
        let mut refusal = answer(
            StatusCode::PROXY_AUTHENTICATION_REQUIRED,
            "text/plain",
            "who are you?\n",
        );
        let scheme = HeaderValue::from_static("Basic realm=\"proxy\"");
        refusal.headers_mut().insert(PROXY_AUTHENTICATE, scheme);
        return refusal;
    }
    match forward(request).await {
        Ok(answered) => answered.map(|body| body.map_err(BoxError::from).boxed_unsync()),
        Err(error) => {
            tracing::warn!(%client, error = format!("{error:#}"), "nothing to forward");
            answer(StatusCode::BAD_GATEWAY, "text/plain", format!("{error:#}\n"))
        }
    }
}

/// Asks the server that the request names, on a connection for this one request.
async fn forward(mut request: Asked) -> Result<Response<Incoming>> {
    let url = request.uri().clone();
    let authority = url.authority().context("the request does not name its server")?;
    ensure!(
        url.scheme_str() == Some("http"),
        "the proxy forwards plain HTTP only, not {} {url}",
        request.method()
    );
    let stream = TcpStream::connect((authority.host(), authority.port_u16().unwrap_or(80)))
        .await
        .with_context(|| authority.to_string())?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    tokio::spawn(connection);
    let headers = request.headers_mut();
    headers.remove(PROXY_AUTHORIZATION);
    headers.remove(PROXY_CONNECTION);
    headers.insert(HOST, HeaderValue::from_str(authority.as_str())?);
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    *request.uri_mut() = path.parse::<Uri>()?;
    Ok(sender.send_request(request).await?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::Ipv4Addr;
    use std::process::Command;

    use super::super::files::FileServer;
    use super::*;

    #[test]
    fn who_has_the_password_gets_files_of_the_server() {
        let files = tempfile::tempdir().unwrap();
        fs::write(files.path().join("file"), "content").unwrap();
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        let mirror = FileServer::start(anywhere, files.path()).unwrap();
        let login = Login {
            username: "node".to_owned(),
            password: r#"it's "so" \ secret"#.to_owned(),
        };
        let proxy = Proxy::start(anywhere, login.clone()).unwrap();
        let curl = |password: &str, url: &str| {
            let output = Command::new("curl")
                .args(["-s", "-w", " %{http_code}", "--noproxy", "", "--proxy"])
                .arg(format!("http://{}", proxy.address()))
                .args(["--proxy-user", &format!("node:{password}"), url])
                .output();
            String::from_utf8(output.unwrap().stdout).unwrap()
        };
        let url = format!("{}/file", mirror.url());
        assert_eq!(curl("another", &url), "who are you?\n 407");
        assert!(mirror.requests().is_empty());
        assert_eq!(curl(&login.password, &url), "content 200");
        assert_eq!(
            curl(&login.password, &format!("{}/none", mirror.url())),
            "404 Not Found\n 404"
        );
        assert!(curl(&login.password, "http://127.0.0.1:1/file").ends_with(" 502"));
        let statuses: Vec<u16> = proxy.requests().iter().map(|request| request.status).collect();
        assert_eq!(statuses, [407, 200, 404, 502]);
        // A tunnel, which this proxy has not.
        assert_eq!(curl(&login.password, "https://127.0.0.1:1/file"), " 000");
    }
}
