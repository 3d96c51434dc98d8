//! The instance metadata of AWS (IMDSv2), as far as our profiles read it.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use anyhow::Result;
use hyper::{Method, StatusCode};

use super::{Answer, Asked, Log, Request, Server, answer, serve_http};

/// A session's token: whoever asks for one gets this.
const TOKEN: &str = "a-session-of-the-metadata-service";

/// A running metadata service. Dropping it ends it.
///
/// `PUT /latest/api/token` gives a token to who says how long it is to live, and `GET /latest/meta-data/local-hostname` the private DNS name
/// of the machine that asks, to who has one; all else is not found.
#[derive(Debug)]
pub struct InstanceMetadata {
    server: Server,
    log: Log,
}

impl InstanceMetadata {
    /// Names of machines end with `domain`.
    ///
    /// # Errors
    /// When `listen` can't be listened on.
    pub fn start(listen: SocketAddr, domain: &str) -> Result<Self> {
        let (log, domain) = (Log::default(), Arc::new(domain.to_owned()));
        let serving = log.clone();
        let server = Server::start(&[listen], move |stream, client| {
            let (log, domain) = (serving.clone(), domain.clone());
            async move {
                serve_http(stream, client, &log, async |request| {
                    tell(&request, client, &domain)
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

    /// Every request so far.
    #[must_use]
    pub fn requests(&self) -> Vec<Request> {
        self.log.requests()
    }
}

/// The private DNS name of the machine with this address, as AWS makes it.
#[must_use]
pub fn private_dns_name(address: IpAddr, domain: &str) -> String {
    format!("ip-{}.{domain}", address.to_string().replace(['.', ':'], "-"))
}

fn tell(request: &Asked, client: IpAddr, domain: &str) -> Answer {
    let header = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok());
    let plain = |status, text: String| answer(status, "text/plain", text);
    match (request.method(), request.uri().path()) {
        (&Method::PUT, "/latest/api/token") => {
            let life =
                header("x-aws-ec2-metadata-token-ttl-seconds").and_then(|life| life.parse::<u32>().ok());
            match life {
                Some(1..=21_600) => plain(StatusCode::OK, TOKEN.to_owned()),
                _ => plain(StatusCode::BAD_REQUEST, String::new()),
            }
        }
        (&Method::GET, path) if header("x-aws-ec2-metadata-token") == Some(TOKEN) => match path {
            "/latest/meta-data/local-hostname" => plain(StatusCode::OK, private_dns_name(client, domain)),
            _ => plain(StatusCode::NOT_FOUND, String::new()),
        },
        _ => plain(StatusCode::UNAUTHORIZED, String::new()),
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn metadata_requires_a_token() {
        let service = InstanceMetadata::start("127.0.0.1:0".parse().unwrap(), "example.internal").unwrap();
        let curl = |arguments: &[&str], path: &str| {
            let mut curl = Command::new("curl");
            curl.args(["-s", "-w", " %{http_code}"]).args(arguments);
            let output = curl
                .arg(format!("http://{}/latest/{path}", service.address()))
                .output()
                .unwrap();
            String::from_utf8(output.stdout).unwrap()
        };
        let token = curl(
            &["-X", "PUT", "-H", "X-aws-ec2-metadata-token-ttl-seconds: 60"],
            "api/token",
        );
        assert_eq!(token, format!("{TOKEN} 200"));
        assert_eq!(curl(&["-X", "PUT"], "api/token"), " 400");
        assert_eq!(curl(&[], "meta-data/local-hostname"), " 401");
        let header = format!("X-aws-ec2-metadata-token: {TOKEN}");
        assert_eq!(
            curl(&["-H", &header], "meta-data/local-hostname"),
            "ip-127-0-0-1.example.internal 200"
        );
        assert_eq!(curl(&["-H", &header], "meta-data/ami-id"), " 404");
        assert_eq!(service.requests().len(), 5);
    }
}
