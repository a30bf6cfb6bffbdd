#!/usr/bin/env python3
"""exposition.py check METRICS: whether a file is in the text format of Prometheus (0.0.4), strictly.
exposition.py used METRICS DASHBOARD ALERTS: whether a Grafana dashboard and alert rules use only what METRICS has.

Strict: each family has HELP and TYPE once and before its samples, which come in one piece; no series comes twice;
names, labels and values are well-formed; counters end in _total and are not negative."""
import json
import re
import sys

NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
NUMBER = re.compile(r"[-+]?(\d+(\.\d*)?|\.\d+)([eE][-+]?\d+)?$|[-+]?Inf$|NaN$")


class Wrong(Exception):
    """What is wrong with the file."""


def labels_of(text, at):
    """The labels of a sample, from behind its brace, and where they end."""
    labels = {}
    while text[at] != "}":
        name = LABEL.match(text, at)
        if not name or text[name.end():name.end() + 2] != '="':
            raise Wrong(f"a label is not well-formed: {text}")
        at, value = name.end() + 2, ""
        while text[at] != '"':
            if text[at] == "\\":
                at += 1
                if text[at] not in '\\"n':
                    raise Wrong(f"an escape that there is not: {text}")
            value += text[at]
            at += 1
        if name.group() in labels:
            raise Wrong(f"a label twice: {text}")
        labels[name.group()] = value
        at += 1
        if text[at] == ",":
            at += 1
            if text[at] == "}":
                raise Wrong(f"a comma behind the last label: {text}")
        elif text[at] != "}":
            raise Wrong(f"a label without a comma behind it: {text}")
    return labels, at + 1


def parse(text):
    """{family: {"type": ..., "series": [labels]}}"""
    families, seen, current = {}, set(), None
    if not text.endswith("\n"):
        raise Wrong("the last line has no end")
    for line in text[:-1].split("\n"):
        if line.startswith("# "):
            word, name, rest = (line[2:].split(" ", 2) + ["", ""])[:3]
            if word == "HELP":
                if name in families or not NAME.fullmatch(name) or not rest:
                    raise Wrong(f"HELP: {line}")
                families[name] = {"type": None, "series": []}
                current = name
            elif word == "TYPE":
                if name != current or families[name]["type"] or families[name]["series"]:
                    raise Wrong(f"TYPE: {line}")
                if rest not in ("counter", "gauge"):
                    raise Wrong(f"a type that is not used here: {line}")
                families[name]["type"] = rest
                if (rest == "counter") != name.endswith("_total"):
                    raise Wrong(f"a counter, and only a counter, ends in _total: {line}")
            else:
                raise Wrong(f"a comment: {line}")
            continue
        name = NAME.match(line)
        if not name or name.group() != current or not families[current]["type"]:
            raise Wrong(f"a sample outside its family: {line}")
        at, labels = name.end(), {}
        try:
            if line[at] == "{":
                labels, at = labels_of(line, at + 1)
        except IndexError:
            raise Wrong(f"a sample that does not end: {line}") from None
        value = line[at + 1:]
        if line[at:at + 1] != " " or not NUMBER.match(value):
            raise Wrong(f"a value: {line}")
        if value in ("NaN", "+Inf", "-Inf") or families[current]["type"] == "counter" and float(value) < 0:
            raise Wrong(f"a value that cannot be: {line}")
        series = (current, tuple(sorted(labels.items())))
        if series in seen:
            raise Wrong(f"a series twice: {line}")
        seen.add(series)
        families[current]["series"].append((labels, float(value)))
    for name, family in families.items():
        if not family["type"]:
            raise Wrong(f"{name} has no type")
    return families


FUNCTIONS = {"sum", "max", "min", "avg", "count", "by", "on", "without", "ignoring", "group_left", "group_right", "rate",
             "increase", "absent", "label_values", "or", "and", "unless", "clamp_min", "changes", "topk", "offset", "bool"}
OURS = {"up": {"job", "instance"}}  # made by Prometheus itself, for every target
ADDED = {"job", "instance"}  # to every series, by Prometheus


def uses_of(expression):
    """The (metric, labels in braces) and the labels of by() and on() of an expression in PromQL."""
    metrics, grouped = [], set()
    text = re.sub(r'"(\\.|[^"\\])*"', '""', expression)
    for match in re.finditer(r"\b(?:by|on|without|ignoring|group_left|group_right)\s*\(([^)]*)\)", text):
        grouped |= {word.strip() for word in match.group(1).split(",") if word.strip()}
    text = re.sub(r"\b(by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)", " ", text)
    text = re.sub(r"\[[^]]*\]", " ", text)
    for match in re.finditer(r"\b([a-zA-Z_:][a-zA-Z0-9_:]*)\s*(\{[^}]*\})?", text):
        name, braces = match.group(1), match.group(2) or ""
        if name in FUNCTIONS and not braces:
            continue
        metrics.append((name, set(re.findall(r"([a-zA-Z_][a-zA-Z0-9_]*)\s*[=!]", braces))))
    return metrics, grouped


def check_use(where, expression, families):
    """Raises Wrong unless every metric and label of the expression is there."""
    metrics, grouped = uses_of(expression)
    if not metrics:
        raise Wrong(f"{where}: no metric in: {expression}")
    known = set(ADDED)
    for name, labels in metrics:
        if name in OURS:
            has = OURS[name]
        elif name in families and families[name]["series"]:
            has = {label for one, _ in families[name]["series"] for label in one} | ADDED
        else:
            raise Wrong(f"{where}: {name} is not exposed")
        if labels - has:
            raise Wrong(f"{where}: {name} has no label {', '.join(labels - has)}")
        known |= has
    if grouped - known:
        raise Wrong(f"{where}: no metric of it has the label {', '.join(grouped - known)}")


def check_legend(where, legend, families, expression):
    labels = {label for name, _ in uses_of(expression)[0] if name in families
              for one, _ in families[name]["series"] for label in one} | ADDED
    for label in re.findall(r"\{\{\s*([a-zA-Z_]+)\s*\}\}", legend):
        if label not in labels:
            raise Wrong(f"{where}: its legend names {label}, which is no label of it")


def check_dashboard(path, families):
    with open(path, encoding="utf-8") as file:
        board = json.load(file)
    used = 0
    for panel in board["panels"]:
        where = f"panel '{panel['title']}'"
        if panel["type"] == "row":
            continue
        if not panel["targets"] or not {"x", "y", "w", "h"} <= set(panel["gridPos"]):
            raise Wrong(f"{where}: without targets or a place")
        for target in panel["targets"]:
            check_use(where, target["expr"], families)
            check_legend(where, target.get("legendFormat", ""), families, target["expr"])
            used += 1
    for variable in board["templating"]["list"]:
        if variable["type"] != "query":
            continue
        match = re.fullmatch(r"label_values\((.+), *([a-zA-Z_]+)\)", variable["query"]["query"])
        if not match:
            raise Wrong(f"variable {variable['name']}: {variable['query']}")
        check_use(variable["name"], f"sum by ({match.group(2)}) ({match.group(1)})", families)
        used += 1
    if len({panel["id"] for panel in board["panels"]}) != len(board["panels"]):
        raise Wrong("two panels have one id")
    return used


def check_alerts(path, families):
    import yaml
    with open(path, encoding="utf-8") as file:
        groups = yaml.safe_load(file)["groups"]
    names = set()
    for group in groups:
        for rule in group["rules"]:
            where = f"alert {rule['alert']}"
            if rule["alert"] in names or not {"severity"} <= set(rule["labels"]):
                raise Wrong(f"{where}: twice, or without a severity")
            if not {"summary", "description"} <= set(rule["annotations"]):
                raise Wrong(f"{where}: without a summary and a description")
            names.add(rule["alert"])
            check_use(where, rule["expr"], families)
            for text in rule["annotations"].values():
                check_legend(where, re.sub(r"\$labels\.([a-zA-Z_]+)", r"\1", text), families, rule["expr"])
    return len(names)


def main(words):
    with open(words[2], encoding="utf-8") as file:
        families = parse(file.read())
    if words[1] == "used":
        print(f"{check_dashboard(words[3], families)} queries, {check_alerts(words[4], families)} alerts")
    else:
        print(f"{len(families)} families")


if __name__ == "__main__":
    try:
        main(sys.argv)
    except Wrong as wrong:
        sys.exit(f"{sys.argv[2]}: {wrong}")
