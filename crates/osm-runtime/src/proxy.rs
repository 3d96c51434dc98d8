//! HTTP proxies on the way to an API server: `proxy-url` of a kubeconfig, or the variable `HTTPS_PROXY`.
//!
//! The proxy is asked for a tunnel (`CONNECT`), so it sees the name of the API server, and nothing of the
//! requests. Its user name and password are in no message.

use anyhow::bail;
use http::Uri;
use http::uri::Scheme;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::TokioIo;
use kube::Config;
use tokio::net::TcpStream;
use tower::BoxError;
use tower::util::{BoxCloneSyncService, ServiceExt as _};

use crate::error;

/// Makes the connections that TLS is spoken on.
pub(crate) type Tcp = BoxCloneSyncService<Uri, TokioIo<TcpStream>, BoxError>;

/// Connects through the proxy of a configuration, or directly if it has none.
///
/// # Errors
/// A proxy that is not asked by HTTP, and one without a host.
pub(crate) fn through(config: &Config, tcp: HttpConnector) -> anyhow::Result<Tcp> {
    let Some(url) = &config.proxy_url else {
        return Ok(Tcp::new(tcp.map_err(BoxError::from)));
    };
    let scheme = url.scheme().unwrap_or(&Scheme::HTTP);
    if *scheme != Scheme::HTTP {
        bail!(
            "the proxy has the scheme {scheme}, and only proxies with the scheme http can be used; correct proxy-url or HTTPS_PROXY"
        );
    }
    let every = Matcher::builder().all(url.to_string()).build();
    let Some(intercept) = every.intercept(&config.cluster_url) else {
        bail!("the proxy has no host; write it as http://HOST:PORT into proxy-url or HTTPS_PROXY");
    };
    let mut tunnel = Tunnel::new(intercept.uri().clone(), tcp);
    if let Some(credentials) = intercept.basic_auth() {
        tunnel = tunnel.with_auth(credentials.clone());
    }
    // Without user name and password, which `intercept` keeps elsewhere.
    let place = intercept
        .uri()
        .authority()
        .map(ToString::to_string)
        .unwrap_or_default();
    let tunnel = tunnel.map_err(move |cause| {
        let cause = error::chain(&cause);
        BoxError::from(format!(
            "the proxy {place} opens no tunnel to the API server ({cause}); check its user name and password, and that it allows CONNECT to \
             the host and port of the API server"
        ))
    });
    Ok(Tcp::new(tunnel))
}

/// kube takes the proxy of the environment for every server. Here `NO_PROXY` excepts servers from it, as for
/// other programs. `variable` reads an environment variable.
pub(crate) fn except(config: &mut Config, variable: impl Fn(&str) -> Option<String>) {
    let either = |names: [&str; 2]| names.into_iter().find_map(&variable).unwrap_or_default();
    let proxy = either(["HTTPS_PROXY", "https_proxy"]);
    let is_of_environment = config.proxy_url.is_some() && config.proxy_url == proxy.parse().ok();
    let no_proxy = either(["NO_PROXY", "no_proxy"]);
    let matcher = Matcher::builder().https(proxy).no(no_proxy).build();
    if is_of_environment && matcher.intercept(&config.cluster_url).is_none() {
        config.proxy_url = None;
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    fn config(server: &'static str, proxy: &str) -> Config {
        let mut config = Config::new(Uri::from_static(server));
        config.proxy_url = Some(proxy.parse().unwrap());
        config
    }

    const SERVER: &str = "https://api.example:6443";

    #[test]
    fn only_http_proxies_are_used_and_no_message_has_their_password() {
        let through = |config: &Config| through(config, HttpConnector::new());
        assert!(through(&config(SERVER, "proxy.example:3128")).is_ok());
        for scheme in ["https", "socks5"] {
            let url = format!("{scheme}://user:hunter2@proxy.example:3128");
            let error = through(&config(SERVER, &url)).err().unwrap().to_string();
            assert!(error.contains(scheme) && !error.contains("hunter2"), "{error}");
        }
        assert!(through(&Config::new(Uri::from_static(SERVER))).is_ok());
    }

    #[test]
    fn no_proxy_excepts_servers_from_the_proxy_of_the_environment() {
        const PROXY: &str = "http://user:hunter2@proxy.example:3128";
        for (server, proxy, no_proxy, is_used) in [
            (SERVER, PROXY, "", true),
            (SERVER, PROXY, "other.example,10.0.0.0/8", true),
            (SERVER, PROXY, "localhost, .example", false),
            (SERVER, PROXY, "*", false),
            ("https://10.1.2.3:6443", PROXY, "10.0.0.0/8", false),
            ("https://[fd00::1]:6443", PROXY, "fd00::/8", false),
            // That of a kubeconfig.
            (SERVER, "http://another.example:3128", ".example", true),
        ] {
            for [https, no] in [["HTTPS_PROXY", "NO_PROXY"], ["https_proxy", "no_proxy"]] {
                let mut config = config(server, proxy);
                except(&mut config, |name| {
                    let value = match name {
                        name if name == https => PROXY,
                        name if name == no => no_proxy,
                        _ => return None,
                    };
                    Some(value.to_owned())
                });
                assert_eq!(config.proxy_url.is_some(), is_used, "{server} {proxy} {no_proxy}");
            }
        }
    }

    #[tokio::test]
    async fn a_proxy_is_asked_with_the_password_and_its_refusal_is_reported() {
        #[expect(clippy::disallowed_methods, reason = "a server of the test")]
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let mut asked = Vec::new();
                while !asked.ends_with(b"\r\n\r\n") {
                    asked.push(stream.read_u8().await.unwrap());
                }
                let asked = String::from_utf8(asked).unwrap();
                assert!(asked.starts_with("CONNECT api.example:6443 "), "{asked}");
                // user:p@ss
                let answer = if asked.contains("Basic dXNlcjpwQHNz\r\n") {
                    "HTTP/1.1 200 OK\r\n\r\n"
                } else {
                    "HTTP/1.1 407 Proxy Authentication Required\r\n\r\n"
                };
                stream.write_all(answer.as_bytes()).await.unwrap();
            }
        });
        let connect = async |password: &str| {
            let url = format!("http://user:{password}@127.0.0.1:{port}");
            let tunnel = through(&config(SERVER, &url), HttpConnector::new()).unwrap();
            tunnel.oneshot(Uri::from_static(SERVER)).await
        };
        connect("p%40ss").await.unwrap();
        let refused = connect("of-another").await.unwrap_err().to_string();
        assert!(refused.contains("proxy authorization required"), "{refused}");
        assert!(!refused.contains("of-another"), "{refused}");
    }
}
