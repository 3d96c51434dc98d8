# What the README beside this file says: removes keywords that don't decide whether a document is good.
def strip:
  if type != "object" then . else
    with_entries(select(.key | IN("changed", "changed_description", "changed_version", "default", "deprecated", "deprecated_description",
      "deprecated_version", "description", "format", "hidden", "label", "prefixItems") | not))
    | with_entries(
        if (.key | IN("properties", "patternProperties", "$defs")) then .value |= map_values(strip)
        elif (.key | IN("allOf", "anyOf", "oneOf")) then .value |= map(strip)
        elif (.key | IN("items", "additionalProperties")) then .value |= strip
        else . end)
    | if (.items | type) == "array" then . else del(.additionalItems) end
  end;
strip
