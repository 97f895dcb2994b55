

# For any Python to tell its own; `NAMES` are the packages that are looked for.
HERE = """
import importlib.metadata, json, platform
found = {"python": platform.python_version()}
for name in NAMES:
    try:
        found[name] = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        pass
print(json.dumps(found))
"""


def packages_of(told):
    """The versions in what a process of Dask tells; a Python as `3.11.7`, not as `3.11.7.final.0`."""
    packages = dict(told["packages"])
    packages["python"] = ".".join(str(packages.get("python", "")).split(".")[:3])
    return {name: str(packages[name]) for name in RULES if packages.get(name)}


def several(names):
    """`a`, `a and b`, `a, b and 3 others`."""
    shown = names if len(names) < 4 else names[:2] + ["%d others" % (len(names) - 2)]
    return shown[0] if len(shown) == 1 else "%s and %s" % (", ".join(shown[:-1]), shown[-1])


def skew(sides):
    """Compares pairs of a name and its versions: what does not work together, and what may not. A package that a side does not have
    is not compared."""
    breaks, differs = [], []
    for package, parts in sorted(RULES.items()):
        found = {}
        for who, versions in sides:
            if versions.get(package):
                found.setdefault(versions[package], []).append(who)
        kin = {tuple(version.split(".")[:parts]) if parts else version for version in found}
        if len(kin) > 1:
            said = ", ".join("%s on %s" % (version, several(names)) for version, names in found.items())
            (breaks if parts else differs).append("%s %s" % (package, said))
    return breaks, differs
