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

/// The ConfigMap and the key behind a file of a container.
pub fn mounted(deployment: &Object, container: &Value, path: &str) -> Option<(String, String)> {
    let text = |value: &Value, field: &str| value.get(field)?.as_str().map(str::to_owned);
    let mounts = container.get("volumeMounts").and_then(Value::as_array);
    mounts.into_iter().flatten().find_map(|mount| {
        let folder = text(mount, "mountPath")?;
        let file = match text(mount, "subPath") {
            Some(file) => Some(file).filter(|_| folder == path)?,
            None => path
                .strip_prefix(folder.trim_end_matches('/'))?
                .strip_prefix('/')?
                .to_owned(),
        };
        let volume = text(mount, "name")?;
        let volumes = deployment.items("/spec/template/spec/volumes");
        let volume = volumes
            .iter()
            .find(|one| text(one, "name").as_ref() == Some(&volume))?;
        let map = volume.get("configMap")?;
        let items = map.get("items").and_then(Value::as_array);
        let key = match items {
            Some(items) => items
                .iter()
                .find(|item| text(item, "path").as_ref() == Some(&file))
                .and_then(|item| text(item, "key"))?,
            None => file,
        };
        Some((text(map, "name")?, key))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::migrate::kinds;

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
    fn a_file_is_found_in_its_config_map() {
        let deployment = Object::new(
            kinds::DEPLOYMENT,
            json!({"spec": {"template": {"spec": {"volumes": [
                {"name": "ca", "configMap": {"name": "bundle"}},
                {"name": "items", "configMap": {"name": "other", "items": [{"key": "k", "path": "p"}]}},
                {"name": "secret", "secret": {"secretName": "s"}},
            ]}}}}),
        );
        let container = json!({"volumeMounts": [
            {"name": "ca", "mountPath": "/etc/ca/"},
            {"name": "items", "mountPath": "/items"},
            {"name": "ca", "mountPath": "/one.pem", "subPath": "x.pem"},
            {"name": "secret", "mountPath": "/secret"},
        ]});
        for (path, expected) in [
            ("/etc/ca/ca.pem", Some(("bundle", "ca.pem"))),
            ("/items/p", Some(("other", "k"))),
            ("/items/q", None),
            ("/one.pem", Some(("bundle", "x.pem"))),
            ("/secret/x", None),
            ("/etc/cacert", None),
        ] {
            let found = mounted(&deployment, &container, path);
            let expected = expected.map(|(map, key)| (map.to_owned(), key.to_owned()));
            assert_eq!(found, expected, "{path}");
        }
    }
}
