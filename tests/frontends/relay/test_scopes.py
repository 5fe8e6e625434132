"""Where nodes are computed: the innermost scope around all uses, in an order that works."""

from __future__ import annotations

import pytest

from tvmpass.frontends.relay import ast
from tvmpass.frontends.relay.closures import recursive
from tvmpass.frontends.relay.scopes import Misplaced, find_scopes, reachable

X, C = ast.Var("x"), ast.Var("c")


def call(name: str, *args: ast.Expression) -> ast.Call:
    return ast.Call(ast.Operator(name), list(args))


def function(body: ast.Expression, *params: ast.Var) -> ast.Function:
    return ast.Function(list(params), body)


def test_operands_come_before_their_users():
    a = call("exp", X)
    b = call("abs", a)
    body = call("add", b, a)
    nodes = find_scopes(function(body, X)).root.nodes
    assert nodes.index(a) < nodes.index(b) < nodes.index(body)
    assert nodes.count(a) == 1


def test_a_node_of_one_branch_is_its_own():
    mine, other = call("exp", X), call("abs", X)
    choice = ast.If(C, mine, other)
    scopes = find_scopes(function(choice, X, C))
    then, otherwise = scopes.branches[choice]
    assert (scopes.owner[mine], scopes.owner[other]) == (then, otherwise)
    assert mine not in scopes.root.nodes


def test_a_node_of_both_branches_stands_before_the_if():
    shared = call("exp", X)
    choice = ast.If(C, call("abs", shared), call("negative", shared))
    scopes = find_scopes(function(choice, X, C))
    assert scopes.owner[shared] is scopes.root
    assert scopes.root.nodes.index(shared) < scopes.root.nodes.index(choice)


def test_a_node_of_two_inner_branches_stands_in_the_outer_one():
    shared = call("exp", X)
    inner = ast.If(C, shared, call("abs", shared))
    outer = ast.If(C, inner, X)
    scopes = find_scopes(function(outer, X, C))
    assert scopes.owner[shared] is scopes.branches[outer][0]


def test_a_let_does_not_fix_where_its_value_is_computed():
    value, var = call("exp", X), ast.Var("v")
    choice = ast.If(C, var, X)
    scopes = find_scopes(function(ast.Let([(var, value)], choice), X, C))
    assert scopes.owner[value] is scopes.branches[choice][0]


def test_what_nobody_reads_is_not_reached():
    dead, var = call("exp", X), ast.Var("v")
    scopes = find_scopes(function(ast.Let([(var, dead)], X), X))
    assert dead not in scopes.owner


def test_a_node_in_a_closure_and_around_it():
    y = ast.Var("y")
    shared, own = call("exp", X), call("abs", y)
    closure = function(call("add", own, shared), y)
    body = call("add", ast.Call(closure, [shared]), X)
    scopes = find_scopes(function(body, X))
    assert scopes.owner[shared] is scopes.root
    assert scopes.owner[own] is scopes.bodies[closure]
    assert own in set(scopes.inside(closure))


def test_a_function_may_name_itself_and_a_value_may_not():
    f, v, y = ast.Var("f"), ast.Var("v"), ast.Var("y")
    closure = function(ast.Call(f, [y]), y)
    scopes = find_scopes(function(ast.Let([(f, closure)], ast.Call(f, [X])), X))
    assert scopes.resolved(f) is closure
    assert recursive([scopes], {}) == {closure}
    with pytest.raises(Misplaced, match="%v is used in its own value"):
        find_scopes(function(ast.Let([(v, call("add", v, X))], v), X))


def test_variables_that_nothing_binds():
    with pytest.raises(Misplaced, match="%y is used where it is not bound"):
        find_scopes(function(call("exp", ast.Var("y")), X))


def test_functions_that_call_each_other_are_recursive_and_others_are_not():
    names = {"a": "b", "b": "a", "c": "a"}
    functions = {}
    for name, target in names.items():
        p = ast.Var("p")
        functions[name] = function(ast.Call(ast.Global(target), [p]), p)
    functions["main"] = function(ast.Call(ast.Global("c"), [X]), X)
    functions["unused"] = function(ast.Call(ast.Global("nowhere"), [X]), X)
    scopes, missing = reachable(functions, "main")
    assert set(scopes) == {"a", "b", "c", "main"} and not missing
    by_name = {name: one.function for name, one in scopes.items()}
    assert recursive(scopes.values(), by_name) == {functions["a"], functions["b"]}


def test_long_chains_of_names_are_followed_once():
    previous: ast.Expression = X
    bindings = []
    for number in range(3000):
        var = ast.Var(f"v{number}")
        bindings.append((var, previous))
        previous = var
    scopes = find_scopes(function(ast.Let(bindings, previous), X))
    assert scopes.resolved(previous) is X
