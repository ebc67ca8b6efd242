(function_definition declarator: (function_declarator declarator: (identifier) @name)) @function
(function_definition declarator: (pointer_declarator declarator: (function_declarator declarator: (identifier) @name))) @function
(function_definition declarator: (reference_declarator (function_declarator declarator: (identifier) @name))) @function
(function_definition declarator: (function_declarator declarator: (field_identifier) @name)) @method
(function_definition declarator: (reference_declarator (function_declarator declarator: (field_identifier) @name))) @method
(function_definition declarator: (pointer_declarator declarator: (function_declarator declarator: (field_identifier) @name))) @method
(function_definition declarator: (function_declarator declarator: (destructor_name) @name)) @method
(function_definition declarator: (function_declarator declarator: (qualified_identifier scope: (_) @container name: [(identifier) (destructor_name) (operator_name)] @name))) @method
(function_definition declarator: (pointer_declarator declarator: (function_declarator declarator: (qualified_identifier scope: (_) @container name: (identifier) @name)))) @method
(function_definition declarator: (reference_declarator (function_declarator declarator: (qualified_identifier scope: (_) @container name: (identifier) @name)))) @method
(field_declaration declarator: (function_declarator declarator: (field_identifier) @name)) @method
(field_declaration declarator: [(field_identifier) @name (pointer_declarator declarator: (field_identifier) @name)]) @field
(translation_unit (declaration declarator: (function_declarator declarator: (identifier) @name)) @function)
(declaration_list (declaration declarator: (function_declarator declarator: (identifier) @name)) @function)
(function_definition declarator: (function_declarator declarator: (qualified_identifier name: (qualified_identifier scope: (_) @container name: [(identifier) (destructor_name) (operator_name)] @name)))) @method
(class_specifier name: (type_identifier) @name body: (field_declaration_list)) @class
(class_specifier name: (type_identifier) @name (base_class_clause [(type_identifier) @super (qualified_identifier name: (type_identifier) @super) (template_type name: (type_identifier) @super)]) body: (field_declaration_list)) @class
(struct_specifier name: (type_identifier) @name body: (field_declaration_list)) @struct
(struct_specifier name: (type_identifier) @name (base_class_clause [(type_identifier) @super (qualified_identifier name: (type_identifier) @super) (template_type name: (type_identifier) @super)]) body: (field_declaration_list)) @struct
(union_specifier name: (type_identifier) @name body: (field_declaration_list)) @struct
(enum_specifier name: (type_identifier) @name body: (enumerator_list)) @enum
(enumerator name: (identifier) @name) @constant
(namespace_definition name: (namespace_identifier) @name) @namespace
(alias_declaration name: (type_identifier) @name) @type
(type_definition declarator: (type_identifier) @name) @type
(preproc_def name: (identifier) @name) @macro
(preproc_function_def name: (identifier) @name) @macro
(translation_unit (declaration declarator: (init_declarator declarator: (identifier) @name)) @variable)
