(namespace_definition name: (namespace_name) @name) @namespace
(class_declaration name: (name) @name) @class
(class_declaration name: (name) @name (base_clause [(name) @super (qualified_name (name) @super)])) @class
(class_declaration name: (name) @name (class_interface_clause [(name) @super (qualified_name (name) @super)])) @class
(class_declaration name: (name) @name body: (declaration_list (use_declaration (name) @super))) @class
(interface_declaration name: (name) @name) @interface
(interface_declaration name: (name) @name (base_clause (name) @super)) @interface
(trait_declaration name: (name) @name) @trait
(enum_declaration name: (name) @name) @enum
(enum_declaration name: (name) @name (class_interface_clause (name) @super)) @enum
(enum_case name: (name) @name) @constant
(method_declaration name: (name) @name) @method
(function_definition name: (name) @name) @function
(property_declaration (property_element name: (variable_name (name) @name))) @field
(const_declaration (const_element (name) @name)) @constant
