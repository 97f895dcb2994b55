

def agree(client, what):
    """Before work is sent: ends the program where versions do not work together."""
    told = client.get_versions(check=False)
    sides = [("the client", packages_of(told["client"])), ("the scheduler", packages_of(told["scheduler"]))]
    sides += [(address, packages_of(one)) for address, one in sorted(told["workers"].items()) if one]
    breaks, differs = skew(sides)
    for said in differs:
        print("%s: versions differ: %s" % (what, said), flush=True)
    if breaks:
        cure = "client, scheduler and workers need one image or one environment, with versions that are pinned"
        raise SystemExit("%s: versions that do not work together: %s; %s" % (what, "; ".join(breaks), cure))


