//! Reads what the pods of a Deployment run and mount. Nothing here knows the Go implementation.

use serde_json::Value;

use crate::cluster::Object;

pub fn containers(deployment: &Object) -> &[Value] {
    deployment.items("/spec/template/spec/containers")
}

/// The words of a container's command line, with the variables that the container sets itself.
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
    let with_variables = |word: &str| {
        let mut word = word.to_owned();
        for (reference, value) in &variables {
            word = word.replace(reference, value);
        }
        word
    };
    words.filter_map(Value::as_str).map(with_variables).collect()
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
}
