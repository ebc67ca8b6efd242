(module name: [(constant) @name (scope_resolution name: (constant) @name)]) @module
(class name: [(constant) @name (scope_resolution name: (constant) @name)]) @class
(class name: [(constant) @name (scope_resolution name: (constant) @name)] superclass: (superclass [(constant) @super (scope_resolution name: (constant) @super)])) @class
(class name: (constant) @name body: (body_statement (call method: (identifier) @_how arguments: (argument_list (constant) @super)) (#any-of? @_how "include" "prepend" "extend"))) @class
(method name: [(identifier) (constant) (operator) (setter)] @name) @method
(singleton_method name: [(identifier) (constant) (operator)] @name) @method
(assignment left: (constant) @name) @constant
(alias name: (identifier) @name) @method
(call method: (identifier) @_how arguments: (argument_list (simple_symbol) @name) (#any-of? @_how "attr_accessor" "attr_reader" "attr_writer" "alias_method" "define_method")) @property
(singleton_method name: (setter) @name) @method
