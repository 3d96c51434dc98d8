//! Reads what the pods of a Deployment run and mount. Nothing here knows the upstream OSM.

use serde::Deserialize;
use serde_json::Value;

use crate::cluster::Object;

pub fn containers(deployment: &Object) -> &[Value] {
    deployment.items("/spec/template/spec/containers")
}

/// How a program of KKP has the command line that it runs when the API server responds.
#[derive(Deserialize)]
struct Wrapped {
    command: String,
    #[serde(default)]
    args: Vec<String>,
}

/// The words of a container's command line, with the variables that the container sets itself. If the program
/// waits for the API server as that of KKP does, these are the words of the command that it runs then.
pub fn command_line(container: &Value) -> Vec<String> {
    let list = |field: &str| {
        let list = container.get(field).and_then(Value::as_array);
        list.map(Vec::as_slice).unwrap_or_default()
    };
    let variable = |variable: &Value| {
        let name = variable.get("name")?.as_str()?;
        Some((format!("$({name})"), variable.get("value")?.as_str()?.to_owned()))
    };
    let variables: Vec<(String, String)> = list("env").iter().filter_map(variable).collect();
    let words = list("command").iter().chain(list("args"));
    let words: Vec<String> = words.filter_map(Value::as_str).map(str::to_owned).collect();
    let with_variables = |mut word: String| {
        for (reference, value) in &variables {
            word = word.replace(reference, value);
        }
        word
    };
    let words = wrapped(&words).unwrap_or(words);
    words.into_iter().map(with_variables).collect()
}

/// The command line that the flag `-command` has as JSON.
fn wrapped(words: &[String]) -> Option<Vec<String>> {
    let text = words.iter().enumerate().find_map(|(at, word)| {
        let flag = word.strip_prefix("--").or_else(|| word.strip_prefix('-'))?;
        match flag.split_once('=') {
            None if flag == "command" => words.get(at + 1).map(String::as_str),
            Some(("command", text)) => Some(text),
            _ => None,
        }
    })?;
    let Wrapped { command, args } = serde_json::from_str(text).ok()?;
    Some([vec![command], args].concat())
}

/// Name of the file that a container runs.
pub fn program(container: &Value) -> String {
    let words = command_line(container);
    let path = words.first().map(String::as_str).unwrap_or_default();
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn variables_of_the_container_are_filled_in() {
        let container = json!({"command": ["/osm-controller"], "args": ["-cluster-dns=$(DNS)", "-node-http-proxy=$(PROXY)"],
            "env": [{"name": "DNS", "value": "10.0.0.10"}, {"name": "PROXY", "valueFrom": {}}]});
        let words = [
            "/osm-controller",
            "-cluster-dns=10.0.0.10",
            "-node-http-proxy=$(PROXY)",
        ];
        assert_eq!(command_line(&container), words);
    }

    #[test]
    fn the_command_that_a_waiting_program_runs_is_read() {
        let command = r#"{"command":"/usr/local/bin/osm-controller","args":["-cluster-dns","$(DNS)","-log-debug=false"]}"#;
        let words = [
            "/usr/local/bin/osm-controller",
            "-cluster-dns",
            "10.0.0.10",
            "-log-debug=false",
        ];
        for flag in [vec!["-command", command], vec![&*format!("--command={command}")]] {
            let args = [
                vec![
                    "-endpoint",
                    "https://apiserver-external.cluster-a.svc.cluster.local./healthz",
                ],
                flag,
            ]
            .concat();
            let container = json!({"command": ["/http-prober-bin/http-prober"], "args": args,
                "env": [{"name": "DNS", "value": "10.0.0.10"}]});
            assert_eq!(command_line(&container), words);
            assert_eq!(program(&container), "osm-controller");
        }
        let other = json!({"command": ["/wait", "-command", "sleep"]});
        assert_eq!(command_line(&other), ["/wait", "-command", "sleep"]);
    }
}
